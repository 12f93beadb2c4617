// A tool call that needs approval: what it would do, and the buttons to answer.
import { useState } from "preact/hooks";
import type { ApprovalRequested } from "../api/types";
import { answerApproval } from "../state/actions";
import { ShieldIcon } from "./icons";

function Diff({ text }: { text: string }) {
  return <>{text.split("\n").map((line, index) => <span key={index} class={line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : ""}>{line}{"\n"}</span>)}</>;
}

export function Approval({ approval }: { approval: ApprovalRequested }) {
  const [reason, setReason] = useState("");
  const [asksReason, setAsksReason] = useState(false);
  const [isDone, setDone] = useState(false);
  const respond = async (choice: "once" | "always" | "deny"): Promise<void> => {
    setDone(true);
    if (!(await answerApproval(approval.approval, choice, reason))) setDone(false);
  };
  return (
    <form class="approval" aria-label={`Approve ${approval.call.name}?`} onSubmit={(event) => (event.preventDefault(), void respond("deny"))}>
      <p class="approval-title">
        <ShieldIcon /> <strong>{approval.call.name}</strong> needs your approval
      </p>
      <pre class="plain" tabIndex={0}>{approval.action.startsWith("--- ") ? <Diff text={approval.action} /> : approval.action}</pre>
      <div class="buttons">
        <button type="button" class="primary" disabled={isDone} onClick={() => void respond("once")}>Allow once</button>
        <button type="button" disabled={isDone} title={approval.pattern ? `Always allow ${approval.pattern}` : undefined} onClick={() => void respond("always")}>
          Always allow{approval.pattern ? <> <code>{approval.pattern}</code></> : " in this session"}
        </button>
        {asksReason ? (
          <>
            <input aria-label="Reason" placeholder="Reason (optional)" value={reason} onInput={(event) => setReason(event.currentTarget.value)} ref={(input) => input?.focus()} />
            <button type="submit" class="danger" disabled={isDone}>Deny</button>
          </>
        ) : (
          <button type="button" class="danger" disabled={isDone} onClick={() => setAsksReason(true)}>Deny…</button>
        )}
      </div>
    </form>
  );
}
