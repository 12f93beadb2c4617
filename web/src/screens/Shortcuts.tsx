import { Dialog } from "../parts/Dialog";
import { dialog } from "../state/app";

const KEYS: [string, string][] = [
  ["Enter", "send; while an answer runs, queue"],
  ["Shift Enter", "a new line"],
  ["↑", "edit the last message (empty box)"],
  ["@", "name a file of the workspace"],
  ["/", "commands in the box; elsewhere, to the box"],
  ["Ctrl V", "paste a picture or a file"],
  ["Ctrl Shift V", "paste a long text as words"],
  ["Esc", "stop the answer, close what is open"],
  ["Ctrl K", "search everything"],
  ["i", "context inspector"],
  ["t", "branches"],
  ["m", "whom to ask"],
  ["n", "new session"],
  ["s", "sessions"],
  ["e", "edit the last message"],
  ["[ ]", "the version before, the version after"],
  ["0", "in a picture: original or what the model gets"],
  ["+ − ← →", "in a picture: zoom, walk"],
  ["?", "this"],
];

export function Shortcuts() {
  return (
    <Dialog title="Keys" kind="small" onClose={() => (dialog.value = "")}>
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
