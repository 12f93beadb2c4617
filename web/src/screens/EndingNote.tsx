// The note below an answer that is not complete, with the ways to go on.
import { randomKey } from "../api/http";
import { AgainIcon, WarnIcon } from "../parts/icons";
import { regenerate, send } from "../state/actions";
import { model } from "../state/app";
import { formatCost } from "../state/format";
import { plan } from "../state/plan";
import type { Ending, Turn } from "../state/turns";

const ENDING_TEXT: Record<Ending, string> = {
  "": "",
  stopped: "Stopped. The answer is incomplete.",
  interrupted: "Interrupted. The answer is incomplete.",
  incomplete: "This answer is incomplete.",
  unanswered: "This message has no answer.",
};

export function EndingNote({ turn }: { turn: Turn }) {
  const last = turn.answers.at(-1)?.node;
  const usd = plan.value?.models[model.value]?.usd;
  const price = usd ? ` (≈ ${formatCost(usd)})` : "";
  return (
    <div class="ending" role="note" aria-label="Answer status">
      <WarnIcon />
      <span>{turn.parts.length || turn.ending === "unanswered" ? ENDING_TEXT[turn.ending] : turn.ending === "stopped" ? "Stopped before the answer started." : "Interrupted before the answer started."}</span>
      {turn.isLast && turn.parts.length > 0 && <button type="button" class="chip" onClick={() => void send({ text: "Continue where you stopped.", blocks: [], files: [], key: randomKey() })}>Continue{price}</button>}
      {turn.isLast && <button type="button" class="chip" onClick={() => void regenerate(last)}><AgainIcon /> {turn.parts.length ? "Regenerate" : "Answer"}</button>}
    </div>
  );
}
