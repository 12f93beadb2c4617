// The layout: sessions on the left, the conversation in the middle, an optional panel on the right.
import { useEffect } from "preact/hooks";
import { lazy } from "../parts/components";
import { announcement, compared, dialog, isDragging, isUnauthorized, panel, sessionId, showsSessions } from "../state/app";
import { attach } from "../state/composer";
import { filesOf, holdsFiles } from "../state/drop";
import { folderTrust } from "../state/folder_trust";
import { onKey } from "../state/keys";
import { lightbox } from "../state/images";
import { editedAlt } from "../state/plan";
import { ReconnectBar } from "./ReconnectBar";
import { SessionsPane } from "./SessionsPane";
import { TopBar } from "./TopBar";

const ChatPane = lazy(() => import("./ChatPane").then((found) => found.ChatPane));
const Start = lazy(() => import("./Start").then((found) => found.Start));
// Loaded when first shown: the first screen does not need them.
const Login = lazy(() => import("./deferred").then((found) => found.Login));
const Inspector = lazy(() => import("./deferred").then((found) => found.Inspector));
const Branches = lazy(() => import("./deferred").then((found) => found.Branches));
const ModelSwitcher = lazy(() => import("./deferred").then((found) => found.ModelSwitcher));
const Settings = lazy(() => import("./deferred").then((found) => found.Settings));
const Palette = lazy(() => import("./deferred").then((found) => found.Palette));
const Shortcuts = lazy(() => import("./deferred").then((found) => found.Shortcuts));
const Lightbox = lazy(() => import("./deferred").then((found) => found.Lightbox));
const Compare = lazy(() => import("./deferred").then((found) => found.Compare));
const Activity = lazy(() => import("./deferred").then((found) => found.Activity));
const SessionSettings = lazy(() => import("./deferred").then((found) => found.SessionSettings));
const Usage = lazy(() => import("./deferred").then((found) => found.Usage));
const Prompts = lazy(() => import("./deferred").then((found) => found.Prompts));
const Import = lazy(() => import("./deferred").then((found) => found.Import));
const FolderTrust = lazy(() => import("./deferred").then((found) => found.FolderTrust));
const TextAlternative = lazy(() => import("./deferred").then((found) => found.TextAlternative));

export function App() {
  useEffect(() => {
    const listeners = new AbortController();
    const { signal } = listeners;
    addEventListener("keydown", onKey, { signal });
    addEventListener("dragenter", (event) => holdsFiles(event) && (isDragging.value = true), { signal });
    addEventListener("dragover", (event) => holdsFiles(event) && event.preventDefault(), { signal });
    addEventListener("dragleave", (event) => event.relatedTarget === null && (isDragging.value = false), { signal });
    addEventListener(
      "drop",
      (event) => {
        if (!holdsFiles(event)) return;
        event.preventDefault();
        isDragging.value = false;
        void filesOf(event).then(attach);
      },
      { signal },
    );
    return () => listeners.abort();
  }, []);
  if (isUnauthorized.value) return <Login />;
  return (
    <div class={`layout${panel.value ? " with-panel" : ""}${showsSessions.value ? " with-sessions" : ""}`}>
      <a class="skip" href="#message">Skip to the message box</a>
      <TopBar />
      <SessionsPane />
      <main class="middle">
        <ReconnectBar />
        {/* The tree of branches covers the conversation. */}
        <div class="contents" inert={panel.value === "branches" && !!sessionId.value}>{sessionId.value ? <ChatPane key={sessionId.value} /> : <Start />}</div>
      </main>
      {panel.value === "inspector" && sessionId.value && <Inspector />}
      {panel.value === "branches" && sessionId.value && <Branches />}
      {panel.value === "activity" && sessionId.value && <Activity />}
      {dialog.value === "usage" && <Usage />}
      {dialog.value === "prompts" && <Prompts />}
      {dialog.value === "import" && <Import />}
      {dialog.value === "session" && <SessionSettings />}
      {dialog.value === "models" && <ModelSwitcher />}
      {dialog.value === "settings" && <Settings />}
      {dialog.value === "palette" && <Palette />}
      {dialog.value === "shortcuts" && <Shortcuts />}
      {compared.value.length > 1 && <Compare />}
      {lightbox.value && <Lightbox />}
      {editedAlt.value && <TextAlternative />}
      {folderTrust.value && <FolderTrust found={folderTrust.value} />}
      {isDragging.value && (
        <div class="drop-here" aria-hidden="true">
          <p>Drop files to attach them</p>
        </div>
      )}
      <div class="visually-hidden" role="status" aria-live="polite">{announcement.value}</div>
    </div>
  );
}
