// Types of the API (see /openapi.json), and a few derived from them.
import type { ApprovalRequested as ApprovalEvent, PlanCell, SessionView } from "./generated";

export type {
  AgentView, ChangedStep, CommandView, ConfigView, DescriptionView, Estimate, FolderList, FolderTrustView, History, ImportReport, KeyView, LastRow, ListedSession as Listed, LoginView, MediaText, MediaView, MemberView, MessageView, ModelView, NewSession, EventImage as Picture, PlanView as Plan, PlanCell, PlanModel, PlanRow, PostedMessage as Posted, ProcessView, PromptView, QueueView, QueuedView,
  SampleView, SearchResult, ServerCheck, ServerView, SessionPage, SessionView, SettingList, SettingView, ShareView, TreeView as Tree, TreeNode, Todo, ToolView, UndoReport, Usage, ToolUsageRow, UsageReport, UsageRow, UserEntry, UserKey, UserView,
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
