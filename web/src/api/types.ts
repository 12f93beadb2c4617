// Types of the API (see /openapi.json), and a few derived from them.
import type { ApprovalRequested as ApprovalEvent, PlanCell, SessionView } from "./generated";

export type {
  ConfigView, DescriptionView, History, KeyView, LastRow, ListedSession as Listed, LoginView, MediaText, MediaView, MessageView, ModelView, EventImage as Picture, PlanView as Plan, PlanCell, PlanModel, PlanRow, PostedMessage as Posted, QueuedView,
  SampleView, SearchResult, SessionPage, SessionView, TreeView as Tree, TreeNode, Usage,
} from "./generated";

export type ApprovalRequested = Omit<ApprovalEvent, "type">;
export type Rendition = PlanCell["rendition"];
export type Override = Exclude<Rendition, "pages"> | "auto";
export type SessionState = SessionView["state"];

export interface Problem {
  code: string;
  message: string;
  hint?: string;
}
