// What the daemon answers, under the names that it gives it (see /openapi.json), and a few that follow from them.
import type { ApprovalRequested as Asked, PlanCell, SessionView } from "./generated";

export type {
  ConfigView, DescriptionView, History, KeyView, LastRow, Listed, MediaText, MediaView, MessageView, ModelView, Picture, Plan, PlanCell, PlanModel, PlanRow, Posted, QueuedView,
  SampleView, SearchResult, SessionPage, SessionView, Tree, TreeNode, Usage,
} from "./generated";

export type ApprovalRequested = Omit<Asked, "type">;
export type Rendition = PlanCell["rendition"];
export type Override = Exclude<Rendition, "pages"> | "auto";
export type SessionState = SessionView["state"];

export interface Problem {
  code: string;
  message: string;
  hint?: string;
}
