// A call that needs the user's word: what it would do, and the answer.
import { useState } from "preact/hooks";
import type { ApprovalRequested } from "../api/shapes";
import { answer } from "../state/turn";
import { ShieldIcon } from "./icons";

function Diff({ text }: { text: string }) {
  return <>{text.split("\n").map((line, index) => <span key={index} class={line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : ""}>{line}{"\n"}</span>)}</>;
}

export function Approval({ approval }: { approval: ApprovalRequested }) {
  const [reason, setReason] = useState("");
  const [asksWhy, setAsksWhy] = useState(false);
  const [isDone, setDone] = useState(false);
  const say = async (word: "once" | "always" | "deny"): Promise<void> => {
    setDone(true);
    if (!(await answer(approval.approval, word, reason))) setDone(false);
  };
  return (
    <form class="approval" aria-label={`Approve ${approval.call.name}?`} onSubmit={(event) => (event.preventDefault(), void say("deny"))}>
      <p class="approval-title">
        <ShieldIcon /> <strong>{approval.call.name}</strong> needs your word
      </p>
      <pre class="plain" tabIndex={0}>{approval.action.startsWith("--- ") ? <Diff text={approval.action} /> : approval.action}</pre>
      <div class="buttons">
        <button type="button" class="primary" disabled={isDone} onClick={() => void say("once")}>Allow once</button>
        <button type="button" disabled={isDone} title={approval.pattern ? `Always for ${approval.pattern}` : undefined} onClick={() => void say("always")}>
          Always{approval.pattern ? <> for <code>{approval.pattern}</code></> : " in this session"}
        </button>
        {asksWhy ? (
          <>
            <input aria-label="Why not?" placeholder="Because…" value={reason} onInput={(event) => setReason(event.currentTarget.value)} ref={(input) => input?.focus()} />
            <button type="submit" class="grave" disabled={isDone}>Refuse</button>
          </>
        ) : (
          <button type="button" class="grave" disabled={isDone} onClick={() => setAsksWhy(true)}>No, because…</button>
        )}
      </div>
    </form>
  );
}
