// Made by generate_types.py from /openapi.json and /asyncapi.json. Fields that are left out have their default.

export interface AgentList {
  agents: AgentView[];
}

export interface AgentQuery {
  workspace?: string;
}

/** An agent. Empty `model` means the default model; `tools` null means all. `origin` is the file that defines it;
    `notices` say what of the file has no effect here. */
export interface AgentView {
  name: string;
  description: string;
  model: string;
  tools: string[] | null;
  origin?: string;
  notices?: string[];
}

export interface ApprovalAnswer {
  answer: "always" | "deny" | "once";
  reason?: string;
}

export interface ApprovalAnswered {
  type: "approval_answered";
  approval: string;
  answer: "always" | "deny" | "once";
  reason?: string;
  by?: string;
}

export interface ApprovalList {
  approvals: ApprovalRequested[];
}

export interface ApprovalOverview {
  sessions: SessionApprovals[];
}

/** An approval is pending. `action` is the exact command or diff, with control characters escaped. */
export interface ApprovalRequested {
  type: "approval_requested";
  approval: string;
  call: ToolCall;
  action: string;
  pattern?: string;
  values?: Record<string, unknown> | null;
}

/** A recording. `transcript` is the spoken text, if a person or a program has written it. */
export interface AudioBlock {
  type: "audio";
  media: Media;
  transcript?: string;
}

export interface AudioLimits {
  max_size_bytes: number;
}

/** The supported sign-in methods. `password`: whether `POST /v1/login` accepts a password or a user's key. */
export interface AuthMethods {
  password: boolean;
}

/** The input of the last request to a model: tokens as estimated before it was sent, as billed, and how many of the
    latter the provider read from its cache or wrote to it. */
export interface BilledRequest {
  estimated_tokens: number;
  billed_tokens: number;
  cached_tokens: number;
}

/** A complete provider-specific block: a call of a tool that the provider runs itself, or its result. */
export interface BlockAdded {
  type: "block";
  index: number;
  block: UnknownBlock;
}

/** A fragment of the arguments' JSON text. */
export interface CallDelta {
  type: "call";
  index: number;
  arguments: string;
}

/** The arguments are complete. A call without this event was cut off and must not run. */
export interface CallFinished {
  type: "call_finished";
  index: number;
  opaque?: Opaque | null;
}

export interface CallStarted {
  type: "call_started";
  index: number;
  id: string;
  name: string;
}

export interface Cancel {
  turn?: string;
  pause_queue?: boolean;
}

export interface CapabilityView {
  vision: boolean;
  native_pdf: boolean;
  thinking: boolean;
  tools: boolean;
  audio: boolean;
  video: boolean;
  citations: boolean;
}

export interface ChangeList {
  steps: ChangedStep[];
}

/** A step that changed files. Steps are counted from 1 along the path. */
export interface ChangedStep {
  step: number;
  node: string;
  changes: FileChange[];
  is_undone?: boolean;
}

/** Another model that has a key, costs less for the same request, and receives every block in no lesser form. */
export interface CheaperModel {
  model: string;
  input_tokens: number;
  usd: number;
}

export interface Children {
  children: MessageView[];
}

/** The source of a statement, in one form for all providers.

    `start` and `end` count code points of the block's text. `first` and `last` are in the unit that `locator` names
    (pages count from one, inclusive; characters and blocks from zero, end exclusive). */
export interface Citation {
  quote?: string;
  title?: string;
  url?: string;
  digest?: string;
  locator?: "" | "block" | "char" | "page" | "result";
  first?: number | null;
  last?: number | null;
  start?: number | null;
  end?: number | null;
  opaque?: Opaque | null;
}

export interface Cited {
  type: "cited";
  index: number;
  citation: Citation;
}

export interface CommandList {
  commands: CommandView[];
}

export interface CommandQuery {
  workspace?: string;
}

/** A slash command of the user or of the workspace. `$ARGUMENTS` in `text` is replaced with the text after the
    command, `$1` to `$9` with its words; a session expands `/NAME` itself. */
export interface CommandView {
  name: string;
  description: string;
  text: string;
}

export interface CompactBody {
  model?: string;
}

export interface ConfigView {
  images: ImageLimits;
  documents: DocumentLimits;
  audio: AudioLimits;
  upload: UploadLimits;
  model: string;
  workspace: string;
  offline: boolean;
}

export interface ConversationMessage {
  role: "assistant" | "tool" | "user";
  blocks: (TextBlock | ImageBlock | DocumentBlock | AudioBlock | VideoBlock | UnknownBlock | ThinkingBlock | ToolCall | ToolResult)[];
}

export interface DescriptionView {
  text: string;
  by: string;
}

/** Tokens that the provider of the session's model has cached, and that will not be read if the request is sent as
    planned: with another model, another system prompt, other tools or renditions, or from an earlier message. */
export interface DiscardedCache {
  tokens: number;
  usd: number | null;
}

/** A document. `pages` is a range such as "21-40", counted from one, inclusive; empty means all pages. */
export interface DocumentBlock {
  type: "document";
  media: Media;
  pages?: string;
  title?: string;
}

export interface DocumentLimits {
  max_pdf_bytes: number;
  max_office_bytes: number;
  pages_per_read: number;
}

/** The expected cost of a request before it is sent. The length of the answer is not known, so only the input
    counts. */
export interface Estimate {
  input_tokens: number;
  cached_tokens: number;
  usd: number | null;
  cheaper?: CheaperModel | null;
  discards?: DiscardedCache | null;
  last?: BilledRequest | null;
}

/** A stored event with its number. `data` is the JSON of the event. */
export interface EventEnvelope {
  type: string;
  data: TextDelta | TextSealed | Cited | ThinkingDelta | ThinkingSealed | CallStarted | CallDelta | CallFinished | ImageAdded | BlockAdded | UsageReported | Stopped | TurnStarted | MessageStored | StepStarted | StepFinished | ToolStarted | ToolProgressed | ToolFinished | ApprovalRequested | ApprovalAnswered | NoticeRaised | MessageQueued | TurnFinished | TurnFailed;
  seq?: number;
  session?: string;
}

/** An image in an event: a reference and a preview to show at once. */
export interface EventImage {
  image_id: string;
  url: string;
  media_type: string;
  mime: string;
  width?: number | null;
  height?: number | null;
  alt?: string;
  source?: string;
  preview?: string;
}

/** `after`: the number of the last event that was received, or `now`. */
export interface EventQuery {
  after?: string;
}

export interface ExportQuery {
  format?: "html" | "json" | "md" | "zip";
}

/** One write: `path` relative to the workspace, and the digests of the content before and after.

    `before` is None for a new file; `kept` is None if the previous bytes were not stored. */
export interface FileChange {
  path: string;
  before?: string | null;
  after: string;
  kept?: KeptBytes | null;
}

export interface FileList {
  files: string[];
}

export interface FileQuery {
  q?: string;
}

/** A file of the session's workspace. */
export interface FileReference {
  type: "file";
  path: string;
}

/** A file that instructs the model or configures Loom. `text` is its beginning; `is_foreign`: of another user. */
export interface FolderFile {
  name: string;
  bytes: number;
  is_foreign: boolean;
  text: string;
}

/** The folders and tags of sessions that are not archived, and how many sessions are in each. */
export interface FolderList {
  folders: Record<string, number>;
  tags: Record<string, number>;
}

/** Instructions and settings of a folder, and the decision about them. `digest` stands for exactly these files;
    empty if they are too many to decide about. `more` counts files that are not in `files`. */
export interface FolderTrustView {
  folder: string;
  state: "refused" | "trusted" | "unknown";
  needs_decision: boolean;
  kinds: string[];
  digest: string;
  files: FolderFile[];
  more: number;
}

/** A model in the format of the OpenAI and Anthropic APIs. */
export interface GatewayModel {
  id: string;
  object?: "model";
  type?: "model";
  display_name: string;
  created: number;
  created_at: string;
  owned_by: string;
}

/** A page of the path to a node, oldest first, and the state of the session. `watch(after=seq)` continues it without
    a gap. `more`: whether there are older messages; pass the node of the first one as `before`. */
export interface History {
  messages: MessageView[];
  more: boolean;
  system: string;
  head: string;
  seq: number;
  queue: QueuedView[];
  approvals: ApprovalRequested[];
  running: Running | null;
  branches?: number;
  failure?: TurnFailed | null;
  notices?: NoticeView[];
}

export interface ImageAdded {
  type: "image";
  index: number;
  image: ImageBlock;
}

/** An image. `alt` is a text alternative by a person, `description` one by a model; both may replace the image. */
export interface ImageBlock {
  type: "image";
  media: Media;
  alt?: string;
  description?: string;
  detail?: "auto" | "high" | "low";
}

/** An image. `base64` may be a data: URL. `media_type` is not trusted: the type is detected from the bytes. */
export interface ImageInput {
  base64?: string;
  url?: string;
  media_type?: string;
  name?: string;
  data?: string;
  mime?: string;
}

export interface ImageLimits {
  max_per_message: number;
  max_size_bytes: number;
  max_per_session: number;
}

/** An image in the store. */
export interface ImageReference {
  type: "image_ref";
  image_id: string;
  name?: string;
}

export interface ImageShown {
  type: "image";
  image_id: string;
  url: string;
  media_type: string;
  mime: string;
  width?: number | null;
  height?: number | null;
  alt?: string;
  source?: string;
  preview?: string;
  index: number;
  image: ImageBlock;
}

/** The result of an import. `notices` are about the file as a whole. */
export interface ImportReport {
  sessions: ImportedSession[];
  notices?: string[];
}

/** The session of an import. `is_new`: whether no session had this conversation at its head; `shared`: how many of
    its messages, from the first one, were already stored. */
export interface ImportView {
  session: SessionView;
  is_new: boolean;
  shared: number;
}

/** A conversation of a file, and the session that contains it now. */
export interface ImportedSession {
  kind: string;
  session: string;
  title: string;
  messages: number;
  media: number;
  shared: number;
  is_new: boolean;
  notices: string[];
}

export interface Join {
  session?: string;
  after?: number | null;
  inline?: boolean;
  sessions?: boolean;
}

/** The reply to `join`. `seq` is the number of the session's last event. */
export interface Joined {
  ok: boolean;
  seq?: number;
  error?: ProblemText | null;
}

/** Bytes in the media store. The field name is significant: the store searches for it (`store.media_references`). */
export interface KeptBytes {
  digest: string;
}

export interface KeyList {
  keys: KeyView[];
}

export interface KeyView {
  provider: string;
  set: boolean;
  env: string;
  last4: string;
}

/** A block of the last request to a model. */
export interface LastRow {
  key: string;
  kind: string;
  label: string;
  digest: string;
  rendition: "full" | "low" | "omitted" | "pages" | "text";
  tokens: number;
  bytes: number;
}

/** An entry of the list. */
export interface ListedSession {
  session: string;
  state?: "idle" | "queued" | "running" | "waiting";
  title?: string;
  rev?: number;
  deleted?: boolean;
}

export interface Login {
  password: string;
}

/** A link that opens the web client once. */
export interface LoginLink {
  url: string;
}

export interface LoginList {
  logins: LoginView[];
}

/** A browser that is signed in. `current` is the one that sent the request. */
export interface LoginView {
  id: string;
  user: string;
  address: string;
  agent: string;
  created_at: number;
  seen_at: number;
  current: boolean;
}

/** A reference to bytes. `media_type` is detected from the bytes, never from a suffix. `source` is the origin; it is
    never read again. */
export interface Media {
  digest: string;
  media_type: string;
  size_bytes: number;
  width?: number | null;
  height?: number | null;
  pages?: number | null;
  frames?: number | null;
  duration_seconds?: number | null;
  name?: string;
  source?: string;
  codec?: string;
}

/** The form of a medium. `v`: full, low, thumb, page:N, thumb:N (a small page), sent:MODEL; `session`: the session
    whose plan `sent` uses. */
export interface MediaForm {
  v?: string;
  session?: string;
  name?: string;
}

export interface MediaMark {
  digest: string;
  kind: string;
}

export interface MediaName {
  name?: string;
}

export interface MediaPage {
  page?: number;
}

/** A file in the store; for a document, possibly only some pages. */
export interface MediaReference {
  type: "media";
  digest: string;
  name?: string;
  pages?: string;
}

export interface MediaText {
  text: string;
  pages: number | null;
}

/** A file in the store. `block` is the block that shows it in a message. */
export interface MediaView {
  id: string;
  digest: string;
  kind: "audio" | "document" | "image" | "text" | "video";
  media_type: string;
  size_bytes: number;
  mime: string;
  bytes: number;
  width: number | null;
  height: number | null;
  pages: number | null;
  duration: number | null;
  name: string;
  new: boolean;
  block: TextBlock | ImageBlock | DocumentBlock | AudioBlock | VideoBlock | UnknownBlock;
  notices: string[];
}

export interface MemberChange {
  access?: "edit" | "own" | "view";
}

export interface MemberList {
  members: MemberView[];
}

/** A user of a session: `view` may read it, `edit` may also send messages and answer approvals, `own` may also share
    and delete it. `user` is a name, or `everyone`. */
export interface MemberView {
  user: string;
  access: "edit" | "own" | "view";
}

/** A message of a conversation. A tool message holds all results of the calls before it. The system prompt belongs
    to the root, not to a message. */
export interface Message {
  role: "assistant" | "tool" | "user";
  blocks: (TextBlock | ImageBlock | DocumentBlock | AudioBlock | VideoBlock | UnknownBlock | ThinkingBlock | ToolCall | ToolResult)[];
}

export interface MessageBody {
  text?: string;
  message?: string;
  blocks?: (TextBlock | ImageBlock | DocumentBlock | AudioBlock | VideoBlock | UnknownBlock | ImageReference | MediaReference | FileReference)[];
  images?: ImageInput[];
  workspace?: string;
  model?: string;
  models?: string[];
  parent?: string | null;
  n?: number;
  tools?: string[] | null;
  thinking?: "" | "high" | "low" | "max" | "medium" | "minimal" | "off" | "xhigh";
  options?: RequestChoices | null;
  steer?: boolean;
}

/** A message by its full id, and the newest session that contains it. */
export interface MessagePlace {
  node: string;
  session: SessionView;
}

export interface MessageQuery {
  before?: string;
  head?: string;
  limit?: number;
}

/** A message was queued, paused or resumed. `id` identifies it in the queue; empty if the sender waits for the turn
    instead. `steers`: the running turn reads it at its next step. `paused`: no turn takes it until it is resumed. */
export interface MessageQueued {
  type: "message_queued";
  message: Message;
  id?: string;
  steers?: boolean;
  paused?: boolean;
}

/** The message is stored as this node. It equals what was streamed before. */
export interface MessageStored {
  type: "message_stored";
  node: string;
  message: Message;
}

export interface MessageView {
  node: string;
  parent: string | null;
  role: "assistant" | "tool" | "user";
  source: string;
  blocks: (TextBlock | ImageBlock | DocumentBlock | AudioBlock | VideoBlock | UnknownBlock | ThinkingBlock | ToolCall | ToolResult)[];
  model: string;
  usage: Usage | null;
  usd: number | null;
  stop: string;
  seconds: number | null;
  created_at: number;
  bookmark: string;
  tags: string[];
  siblings: string[];
}

/** The available models. `models` is Loom's own list; the other fields are for clients of the OpenAI and Anthropic
    APIs. */
export interface ModelList {
  models: ModelView[];
  default: string;
  object?: "list";
  data?: GatewayModel[];
  has_more?: boolean;
  first_id?: string | null;
  last_id?: string | null;
}

export interface ModelView {
  reference: string;
  name: string;
  provider: string;
  context_tokens: number;
  capabilities: CapabilityView;
  origins: Record<string, "asked" | "declared" | "guessed" | "learned" | "user">;
  input_usd_per_million: number | null;
  output_usd_per_million: number | null;
  ready: boolean;
  needs: string;
}

/** A request for a description. Empty `model` means the configured describer. */
export interface NewDescription {
  model?: string;
}

export interface NewFork {
  node?: string | null;
  title?: string | null;
}

export interface NewHead {
  node: string;
}

/** A conversation of another program. Its media must be in the store. */
export interface NewImport {
  messages: ConversationMessage[];
  title?: string;
  model?: string;
  system?: string;
  workspace?: string;
}

export interface NewKey {
  key: string;
}

/** A file to store, as one of three: bytes in base64, a URL to fetch, or the digest of bytes that may already be
    stored. */
export interface NewMedia {
  base64?: string;
  url?: string;
  digest?: string;
  name?: string;
  password?: string;
}

export interface NewSession {
  title?: string;
  model?: string;
  system?: string;
  workspace?: string;
  thinking?: "" | "high" | "low" | "max" | "medium" | "minimal" | "off" | "xhigh";
  options?: RequestChoices | null;
  agent?: string;
  tools?: string[];
  plan_mode?: boolean;
}

export interface NewShare {
  days?: number;
}

export interface NewUser {
  name: string;
  role?: "admin" | "user" | "viewer";
}

export interface NodeChange {
  bookmark?: string | null;
  tags?: string[] | null;
}

export interface NodeStored {
  type: "message_stored";
  node: string;
  message: Message;
  parent: string | null;
}

/** A sentence for the user: something was reduced, repaired, retried or learned. */
export interface NoticeRaised {
  type: "notice";
  text: string;
  code?: string;
}

/** A notice of a turn. `after`: the node of the message that was the last one then. `is_early`: whether it is about
    a message whose turn has not started yet. */
export interface NoticeView {
  text: string;
  code: string;
  after: string;
  is_early?: boolean;
}

/** Provider data that is sent back unchanged, and only to the model that produced it. */
export interface Opaque {
  provider: string;
  model: string;
  data: unknown;
}

/** The format of the answer: a JSON Schema object, and a name for the services that require one. */
export interface OutputSchema {
  schema: Record<string, unknown>;
  name?: string;
}

/** Billed tokens of a model divided by the estimated ones, and the number of answers that this was learned from. */
export interface PlanCalibration {
  ratio: number;
  answers: number;
}

export interface PlanCell {
  rendition: "full" | "low" | "omitted" | "pages" | "text";
  tokens: number;
  bytes: number;
  reason: "" | "age" | "budget" | "capability" | "limit" | "missing" | "other-model" | "override" | "prefix" | "quarantine" | "repair";
  detail: string;
}

export interface PlanModel {
  tokens: PlanTokens;
  bytes: number;
  images: number;
  pages: number;
  usd: number | null;
  limit: number;
  cached_rows: number;
  notices: string[];
  error: ProblemText | null;
  rendition_tokens?: Record<string, number>;
  calibration?: PlanCalibration | null;
  last?: LastRow[] | null;
  estimate?: Estimate | null;
  is_preparing?: boolean;
}

export interface PlanRequest {
  models?: string[];
  overrides?: Record<string, "auto" | "full" | "low" | "omitted" | "text">;
  text?: string;
  blocks?: (TextBlock | ImageBlock | DocumentBlock | AudioBlock | VideoBlock | UnknownBlock | ImageReference | MediaReference | FileReference)[];
  max_tokens?: number | null;
  thinking?: "" | "high" | "low" | "max" | "medium" | "minimal" | "off" | "xhigh";
  options?: RequestChoices | null;
  last?: boolean;
  limit?: number;
  before?: string;
  sent?: boolean;
  cheaper?: boolean;
  compact?: boolean;
  at?: string;
  system?: string | null;
  tools?: string[] | null;
}

export interface PlanRow {
  key: string;
  node: string;
  message: number;
  block: number;
  inner: number | null;
  role: string;
  kind: string;
  label: string;
  digest: string;
  alt: string;
  by_model: Record<string, PlanCell>;
}

export interface PlanTokens {
  in: number;
  budget: number | null;
  exact: boolean;
}

export interface PlanView {
  models: Record<string, PlanModel>;
  rows: PlanRow[];
  rev: number;
  next?: string | null;
  above?: number;
}

/** A message that is on disk. `events` is the path at which to watch its turn. */
export interface PostedMessage {
  message: string;
  node: string | null;
  turn: string | null;
  queued: boolean;
  events: string;
  notices: string[];
}

/** A problem as in RFC 9457: `title` describes the problem, `detail` the next step, `code` is for programs. */
export interface ProblemBody {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  code?: string;
  error: ProblemText;
}

/** An error: `code` is for programs, `message` describes the problem, `hint` the next step. */
export interface ProblemText {
  code: string;
  message: string;
  hint?: string;
}

export interface ProcessList {
  processes: ProcessView[];
}

/** A background process of a session. `ports` are those on which it listens. */
export interface ProcessView {
  session: string;
  process: string;
  command: string;
  is_running: boolean;
  exit_code: number | null;
  ports: number[];
  seconds: number;
}

/** A prompt of the library. `$name` in its text is a field; `$input` is the user's input. */
export interface PromptBody {
  text: string;
  system?: string;
  model?: string;
  params?: Record<string, string>;
}

export interface PromptList {
  prompts: PromptView[];
}

export interface PromptView {
  name: string;
  text: string;
  system: string;
  model: string;
  params: Record<string, string>;
  fields: string[];
  is_shared: boolean;
}

export interface QueueChange {
  paused: boolean;
  messages?: string[];
}

export interface QueueView {
  queue: QueuedView[];
}

export interface QueuedView {
  message: string;
  text: string;
  blocks: (TextBlock | ImageBlock | DocumentBlock | AudioBlock | VideoBlock | UnknownBlock | ThinkingBlock | ToolCall | ToolResult)[];
  created_at: number;
  steers?: boolean;
  paused?: boolean;
}

export interface RegenerateBody {
  node?: string | null;
  model?: string;
  n?: number;
  tools?: string[] | null;
  thinking?: "" | "high" | "low" | "max" | "medium" | "minimal" | "off" | "xhigh";
  options?: RequestChoices | null;
}

/** Options of an answer; they take precedence over the model's settings. Options that a platform does not support
    are not sent, and a notice names them. */
export interface RequestChoices {
  max_tokens?: number | null;
  temperature?: number | null;
  top_p?: number | null;
  seed?: number | null;
  stop?: string[];
  thinking?: "" | "high" | "low" | "max" | "medium" | "minimal" | "off" | "xhigh";
  tool_choice?: "any" | "auto" | "none";
  tool_name?: string;
  parallel_calls?: boolean | null;
  output_schema?: OutputSchema | null;
  service_tier?: string;
  user?: string;
  server_tools?: string[];
  cache_key?: string;
  cache?: "" | "1h" | "off";
  extra_body?: Record<string, unknown>;
  extra_headers?: Record<string, string>;
}

export interface Running {
  turn: string;
  model: string;
  partial: EventEnvelope[];
}

export interface SampleList {
  samples: SampleView[];
}

export interface SampleView {
  name: string;
  title: string;
  prompt: string;
  media: MediaView;
}

/** The options of an answer. Those that a platform does not support are not sent; `unsupported_options` names
    them. */
export interface Sampling {
  max_tokens?: number | null;
  temperature?: number | null;
  top_p?: number | null;
  seed?: number | null;
  stop?: string[];
  thinking?: "" | "high" | "low" | "max" | "medium" | "minimal" | "off" | "xhigh";
  tool_choice?: "any" | "auto" | "none";
  tool_name?: string;
  parallel_calls?: boolean | null;
  output_schema?: OutputSchema | null;
  service_tier?: string;
  user?: string;
  server_tools?: string[];
  cache_key?: string;
  cache?: "" | "1h" | "off";
  extra_body?: Record<string, unknown>;
  extra_headers?: Record<string, string>;
}

export interface SearchQuery {
  q: string;
  limit?: number;
}

export interface SearchResult {
  session: string;
  title: string;
  node: string;
  role: string;
  snippet: string;
  media: string | null;
  where: "document" | "picture" | "text";
}

export interface SearchResults {
  results: SearchResult[];
}

export interface ServerBody {
  provider?: string;
  model?: string;
  base_url: string;
  api_key?: string;
}

/** The result of a connection test. `refused`: the server does not accept the key. `unknown`: the key could not be
    checked. */
export interface ServerCheck {
  state: "refused" | "unknown" | "works";
  text: string;
  models?: string[];
}

export interface ServerList {
  servers: ServerView[];
}

/** A model at a server of the user's choice. */
export interface ServerView {
  name: string;
  provider: string;
  model: string;
  base_url: string;
  has_key: boolean;
}

/** A session and its pending approvals. */
export interface SessionApprovals {
  session: SessionView;
  approvals: ApprovalRequested[];
}

export interface SessionChangeBody {
  title?: string | null;
  model?: string | null;
  archived?: boolean | null;
  folder?: string | null;
  tags?: string[] | null;
  pinned?: boolean | null;
  workspace?: string | null;
  thinking?: "" | "high" | "low" | "max" | "medium" | "minimal" | "off" | "xhigh" | null;
  options?: RequestChoices | null;
  agent?: string | null;
  system?: string | null;
  tools?: string[] | null;
  plan_mode?: boolean | null;
}

export interface SessionPage {
  sessions: SessionView[];
  next: string | null;
}

export interface SessionQuery {
  q?: string;
  archived?: boolean;
  folder?: string | null;
  tag?: string;
  pinned?: boolean | null;
  limit?: number;
  before?: string;
}

export interface SessionUsage {
  path: UsageTotals;
  total: UsageTotals;
}

/** A session. `title` is the beginning of the first message until the session is renamed; `rev` counts every change,
    and is the ETag. */
export interface SessionView {
  id: string;
  title: string;
  model: string;
  workspace: string;
  head: string;
  root: string;
  rev: number;
  archived: boolean;
  created_at: number;
  updated_at: number;
  last_seq: number;
  state: "idle" | "queued" | "running" | "waiting";
  options: Sampling;
  snippet: string;
  thumb: string | null;
  agent?: string;
  tools?: string[];
  plan_mode?: boolean;
  damage?: string;
  folder?: string;
  tags?: string[];
  pinned?: boolean;
  parent_session?: string;
}

export interface SettingChange {
  value: string | number | boolean | null;
}

export interface SettingList {
  settings: SettingView[];
  file: string;
  restart?: string[];
}

/** A setting that can be changed here. A null `value` means unset. */
export interface SettingView {
  key: string;
  value: string | number | boolean | null;
  kind: "model" | "number" | "text";
  description: string;
  fixed_by: string;
  applies: "now" | "restart";
}

export interface ShareList {
  shares: ShareView[];
}

/** A link to a conversation as it was when it was shared. */
export interface ShareView {
  id: string;
  node: string;
  path: string;
  created_at: number;
  expires_at: number | null;
}

/** The daemon's health. `degraded` names parts that are unavailable while the daemon works without them. */
export interface Status {
  status: string;
  degraded?: string[];
}

export interface StepFinished {
  type: "step_finished";
  step: number;
  usage: Usage;
  stop?: "end" | "max_tokens" | "other" | "overflow" | "pause" | "refusal" | "stop_sequence" | "tool_calls" | null;
  seconds?: number;
}

export interface StepPriced {
  type: "step_finished";
  step: number;
  usage: Usage;
  stop?: "end" | "max_tokens" | "other" | "overflow" | "pause" | "refusal" | "stop_sequence" | "tool_calls" | null;
  seconds?: number;
  usd: number | null;
}

export interface StepStarted {
  type: "step_started";
  step: number;
  model: string;
  tokens?: number;
  wire_bytes?: number;
}

/** The provider's terminal event. A stream that ends without it is incomplete. */
export interface Stopped {
  type: "stopped";
  reason: "end" | "max_tokens" | "other" | "overflow" | "pause" | "refusal" | "stop_sequence" | "tool_calls";
  detail?: string;
  model?: string;
  response_id?: string;
}

/** `is_system` marks words of a system message inside a conversation: its text begins with a label that
    says so, for models and readers that know no such message. */
export interface TextBlock {
  type: "text";
  text: string;
  citations?: Citation[];
  opaque?: Opaque | null;
  is_system?: boolean;
}

export interface TextDelta {
  type: "text";
  text: string;
  index?: number;
}

/** Opaque data to send back with this text. */
export interface TextSealed {
  type: "text_sealed";
  index: number;
  opaque: Opaque;
}

/** A model's reasoning. The text may be empty if the provider keeps it; `opaque` then holds all of it. */
export interface ThinkingBlock {
  type: "thinking";
  text?: string;
  redacted?: boolean;
  opaque?: Opaque | null;
}

export interface ThinkingDelta {
  type: "thinking";
  text: string;
  index?: number;
}

/** The signature of a thinking block, or the content of a redacted one. */
export interface ThinkingSealed {
  type: "thinking_sealed";
  index: number;
  opaque: Opaque;
  redacted?: boolean;
}

/** One item of the to-do list. */
export interface Todo {
  text: string;
  state?: "done" | "in_progress" | "pending";
}

export interface TodoList {
  todos: Todo[];
}

export interface Token {
  token: string;
}

/** A tool call. `raw_arguments` keeps the model's output if it was not a JSON object; `arguments` is then empty. */
export interface ToolCall {
  type: "tool_call";
  id: string;
  name: string;
  arguments?: Record<string, unknown>;
  raw_arguments?: string | null;
  opaque?: Opaque | null;
}

/** A tool has run. If its result contains images, the fields of the first one are repeated here. */
export interface ToolCallEvent {
  type: "tool_call";
  call_id: string;
  name: string;
  arguments: Record<string, unknown>;
  result: ToolResult;
  seconds: number;
  is_error: boolean;
  images: EventImage[];
  image_id?: string;
  url?: string;
  media_type?: string;
  mime?: string;
  width?: number | null;
  height?: number | null;
  alt?: string;
  source?: string;
  preview?: string;
}

export interface ToolFinished {
  type: "tool_finished";
  result: ToolResult;
  seconds?: number;
}

export interface ToolList {
  tools: ToolView[];
}

export interface ToolProgressed {
  type: "tool_progressed";
  call_id: string;
  text: string;
  fraction?: number | null;
}

/** The result of a tool call. `blocks` are sent to the model, `data` only to interfaces (a table for a chart, a diff
    for a viewer). */
export interface ToolResult {
  type: "tool_result";
  call_id: string;
  blocks: (TextBlock | ImageBlock | DocumentBlock | AudioBlock | VideoBlock | UnknownBlock)[];
  name?: string;
  is_error?: boolean;
  data?: unknown;
}

export interface ToolStarted {
  type: "tool_started";
  call: ToolCall;
}

/** The use of one tool in one session on one day, in the time zone of the server. */
export interface ToolUsageRow {
  day: string;
  tool: string;
  session: string;
  title: string;
  calls?: number;
  failed?: number;
  text_tokens?: number;
  media?: number;
}

/** A tool that sessions may use. `parameters` is the JSON Schema of its arguments. */
export interface ToolView {
  name: string;
  description: string;
  parameters: Record<string, unknown>;
}

export interface TreeNode {
  node: string;
  parent: string | null;
  role: string;
  source: string;
  label: string;
  media: MediaMark[];
  model: string;
  created_at: number;
  bookmark: string;
  tags: string[];
  depth: number;
}

/** A page of the tree, parents before children. `after` is the last node of the previous page; `limit` 0 means
    all. */
export interface TreeQuery {
  after?: string;
  limit?: number;
}

export interface TreeView {
  root: string;
  head: string;
  nodes: TreeNode[];
  next?: string | null;
}

/** A decision about the files that `digest` stands for. `workspace` empty: the working directory. */
export interface TrustDecisionBody {
  workspace?: string;
  digest: string;
  trusted: boolean;
}

export interface TrustQuery {
  workspace?: string;
}

/** A turn has failed. `code`, `text` and `hint` are those of the error. */
export interface TurnFailed {
  type: "turn_failed";
  turn: string;
  code: string;
  text: string;
  hint?: string;
}

export interface TurnFinished {
  type: "turn_finished";
  turn: string;
  node: string;
  stop: "end" | "max_tokens" | "other" | "overflow" | "pause" | "refusal" | "stop_sequence" | "tool_calls" | null;
  usage: Usage;
}

/** A turn has started. `message` is the id of the queued message that it answers; empty if it was not queued. */
export interface TurnStarted {
  type: "turn_started";
  turn: string;
  model: string;
  message?: string;
}

/** The step to undo; without `step`, the last one that is not undone yet. */
export interface UndoBody {
  step?: number | null;
}

/** The outcome for each file, in sentences, and the steps that are undone now. */
export interface UndoReport {
  steps: number[];
  files: string[];
}

/** A block of a kind that this version does not know. `data` is the whole object, including `type`. */
export interface UnknownBlock {
  type: "unknown";
  data: Record<string, unknown>;
}

export interface UploadLimits {
  max_bytes: number;
}

/** Tokens as billed. `input_tokens` includes cached tokens, for every provider. */
export interface Usage {
  input_tokens?: number;
  output_tokens?: number;
  cache_read_tokens?: number;
  cache_write_tokens?: number;
  thinking_tokens?: number;
}

export interface UsageQuery {
  days?: number;
  tools?: boolean;
}

/** The usage of today and the days before it, oldest first. */
export interface UsageReport {
  days: number;
  rows: UsageRow[];
  tools?: ToolUsageRow[];
}

/** Cumulative for the step; the last one counts. */
export interface UsageReported {
  type: "usage";
  usage: Usage;
}

/** The usage of one model in one session on one day, in the time zone of the server. */
export interface UsageRow {
  day: string;
  model: string;
  session: string;
  title: string;
  answers?: number;
  usage?: Usage;
  estimated_tokens?: number;
  estimated_input_tokens?: number;
  usd?: number;
  unpriced?: number;
}

/** The usage of the answers on a path, or on all branches. */
export interface UsageTotals {
  answers: number;
  usage: Usage;
  usd: number | null;
}

/** Fields that are not given stay unchanged. A null `day_usd` removes the budget. */
export interface UserChange {
  role?: "admin" | "user" | "viewer";
  day_usd?: number | null;
}

export interface UserEntry {
  name: string;
  role: "admin" | "user" | "viewer";
  created_at: number;
  day_usd: number | null;
  spent_usd: number;
}

/** A user's key. It is returned once: the store has only its hash. */
export interface UserKey {
  name: string;
  key: string;
}

export interface UserList {
  users: UserEntry[];
}

/** A user of this daemon. */
export interface UserView {
  name: string;
  role: "admin" | "user" | "viewer";
}

export interface Version {
  version: string;
  api: number;
}

/** A video. `transcript` is the spoken text, if a person or a program has written it. */
export interface VideoBlock {
  type: "video";
  media: Media;
  transcript?: string;
}

/** The watch has failed. `slow_client`: join again with this `after`. */
export interface WatchFailed {
  code: string;
  message: string;
  hint?: string;
  session?: string;
  after?: number;
}

export interface WireQuery {
  model?: string;
  thinking?: "" | "high" | "low" | "max" | "medium" | "minimal" | "off" | "xhigh";
}

/** The exact request body; each medium is shown as its digest and size. */
export interface WireView {
  provider: string;
  model: string;
  request: Record<string, unknown>;
  notices?: string[];
}

export interface EventData {
  text: TextDelta;
  text_sealed: TextSealed;
  cited: Cited;
  thinking: ThinkingDelta;
  thinking_sealed: ThinkingSealed;
  call_started: CallStarted;
  call: CallDelta;
  call_finished: CallFinished;
  image: ImageShown;
  block: BlockAdded;
  usage: UsageReported;
  stopped: Stopped;
  turn_started: TurnStarted;
  message_stored: NodeStored;
  step_started: StepStarted;
  step_finished: StepPriced;
  tool_started: ToolStarted;
  tool_progressed: ToolProgressed;
  tool_call: ToolCallEvent;
  approval_requested: ApprovalRequested;
  approval_answered: ApprovalAnswered;
  notice: NoticeRaised;
  message_queued: MessageQueued;
  turn_finished: TurnFinished;
  turn_failed: TurnFailed;
}
