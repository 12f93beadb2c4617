import { Dialog } from "../parts/Dialog";
import { dialog } from "../state/app";

const KEYS: [string, string][] = [
  ["Enter", "Send, after uploads; queue while an answer is running"],
  ["Shift Enter", "New line"],
  ["↑", "Edit the last message (when the box is empty)"],
  ["@", "Mention a workspace file"],
  ["/", "Commands; focus the message box"],
  ["Ctrl V", "Paste an image or a file"],
  ["Ctrl Shift V", "Paste long text without attaching it"],
  ["Esc", "Stop the answer; do not send after uploads; close a panel"],
  ["Ctrl K", "Search"],
  ["i", "Context inspector"],
  ["t", "Branches"],
  ["m", "Choose a model"],
  ["o", "Session settings"],
  ["n", "New session"],
  ["s", "Sessions"],
  ["e", "Edit the last message"],
  ["[ ]", "Previous or next version"],
  ["0", "In an image: original or as sent"],
  ["+ − ← →", "In an image: zoom, previous, next"],
  ["+ − 0", "In branches: zoom in, zoom out, fit"],
  ["?", "Show this list"],
];

export function Shortcuts() {
  return (
    <Dialog title="Keyboard shortcuts" kind="small" onClose={() => (dialog.value = "")}>
      <dl class="shortcuts">
        {KEYS.map(([key, words]) => (
          <div key={key}>
            <dt><kbd>{key}</kbd></dt>
            <dd>{words}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
