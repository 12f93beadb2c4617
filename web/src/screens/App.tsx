// The desk: sessions on the left, the conversation in the middle, a panel on the right when one is asked for.
import { useEffect } from "preact/hooks";
import { later } from "../parts/memo";
import { announcement, compared, dialog, isDragging, isLockedOut, panel, sessionId, showsSessions } from "../state/app";
import { attach } from "../state/composer";
import { filesOf, holdsFiles } from "../state/drop";
import { onKey } from "../state/keys";
import { opened } from "../state/pictures";
import { worded } from "../state/plan";
import { ReconnectBar } from "./ReconnectBar";
import { SessionsPane } from "./SessionsPane";
import { TopBar } from "./TopBar";

// What the first screen does not need comes when it is opened: the conversation, and with the first of them, the others.
const ChatPane = later(() => import("./ChatPane").then((found) => found.ChatPane));
const FirstRun = later(() => import("./FirstRun").then((found) => found.FirstRun));
const LockedOut = later(() => import("./opened").then((found) => found.LockedOut));
const Inspector = later(() => import("./opened").then((found) => found.Inspector));
const Forest = later(() => import("./opened").then((found) => found.Forest));
const ModelSwitcher = later(() => import("./opened").then((found) => found.ModelSwitcher));
const Settings = later(() => import("./opened").then((found) => found.Settings));
const Palette = later(() => import("./opened").then((found) => found.Palette));
const Shortcuts = later(() => import("./opened").then((found) => found.Shortcuts));
const Lightbox = later(() => import("./opened").then((found) => found.Lightbox));
const Compare = later(() => import("./opened").then((found) => found.Compare));
const Words = later(() => import("./opened").then((found) => found.Words));

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
  if (isLockedOut.value) return <LockedOut />;
  return (
    <div class={`desk${panel.value ? " with-panel" : ""}${showsSessions.value ? " with-sessions" : ""}`}>
      <a class="skip" href="#message">Skip to the message box</a>
      <TopBar />
      <SessionsPane />
      <main class="middle">
        <ReconnectBar />
        {sessionId.value ? <ChatPane key={sessionId.value} /> : <FirstRun />}
      </main>
      {panel.value === "inspector" && sessionId.value && <Inspector />}
      {panel.value === "forest" && sessionId.value && <Forest />}
      {dialog.value === "models" && <ModelSwitcher />}
      {dialog.value === "settings" && <Settings />}
      {dialog.value === "palette" && <Palette />}
      {dialog.value === "shortcuts" && <Shortcuts />}
      {compared.value.length > 1 && <Compare />}
      {opened.value && <Lightbox />}
      {worded.value && <Words />}
      {isDragging.value && (
        <div class="drop-here" aria-hidden="true">
          <p>Drop it anywhere</p>
        </div>
      )}
      <div class="unseen" role="status" aria-live="polite">{announcement.value}</div>
    </div>
  );
}
