// The layout: sessions on the left, the conversation in the middle, an optional panel on the right.
import { useEffect } from "preact/hooks";
import { deferred, lazy } from "../parts/components";
import { announcement, compared, dialog, folderTrust, isDragging, isUnauthorized, panel, sessionId, showsSessions } from "../state/app";
import { attach } from "../state/composer";
import { filesOf, holdsFiles } from "../state/drop";
import { onKey } from "../state/keys";
import { lightbox } from "../state/images";
import { editedAlt } from "../state/plan";
import { ReconnectBar } from "./ReconnectBar";
import { SessionsPane } from "./SessionsPane";
import { TopBar } from "./TopBar";

const ChatPane = lazy(() => import("./ChatPane").then((found) => found.ChatPane));
const Start = lazy(() => import("./Start").then((found) => found.Start));
// Loaded when first shown: the first screen does not need them.
const Login = deferred((found) => found.Login);
const Inspector = deferred((found) => found.Inspector);
const Branches = deferred((found) => found.Branches);
const ModelSwitcher = deferred((found) => found.ModelSwitcher);
const Settings = deferred((found) => found.Settings);
const Palette = deferred((found) => found.Palette);
const Shortcuts = deferred((found) => found.Shortcuts);
const Lightbox = deferred((found) => found.Lightbox);
const Compact = deferred((found) => found.Compact);
const Compare = deferred((found) => found.Compare);
const Activity = deferred((found) => found.Activity);
const SessionSettings = deferred((found) => found.SessionSettings);
const Usage = deferred((found) => found.Usage);
const Prompts = deferred((found) => found.Prompts);
const Import = deferred((found) => found.Import);
const FolderTrust = deferred((found) => found.FolderTrust);
const TextAlternative = deferred((found) => found.TextAlternative);

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
      {dialog.value === "compact" && <Compact />}
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
