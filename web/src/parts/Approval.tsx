// A tool call that needs approval: what it would do, and the buttons to answer.
import { useState } from "preact/hooks";
import type { ApprovalRequested } from "../api/types";
import { answerApproval } from "../state/session_actions";
import { ShieldIcon } from "./rare_icons";

function Diff({ text }: { text: string }) {
  return <>{text.split("\n").map((line, index) => <span key={index} class={line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : ""}>{line}{"\n"}</span>)}</>;
}

interface ValueField {
  title?: string;
  description?: string;
  type?: string;
  default?: unknown;
  enum?: string[];
}

/** An empty field is left out: the server fills in its default. */
function changed(values: Record<string, string>, name: string, text: string): Record<string, string> {
  const { [name]: _, ...rest } = values;
  return text ? { ...rest, [name]: text } : rest;
}

export function Approval({ approval }: { approval: ApprovalRequested }) {
  const [reason, setReason] = useState("");
  const [asksReason, setAsksReason] = useState(false);
  const [isDone, setDone] = useState(false);
  const [values, setValues] = useState<Record<string, string>>({});
  const fields = Object.entries((approval.values?.properties ?? {}) as Record<string, ValueField>);
  const respond = async (choice: "once" | "always" | "deny"): Promise<void> => {
    setDone(true);
    const words = approval.values && choice !== "deny" ? JSON.stringify(values) : reason;
    if (!(await answerApproval(approval.approval, choice, words))) setDone(false);
  };
  return (
    <form class="approval" aria-label={`Approve ${approval.call.name}?`} onSubmit={(event) => (event.preventDefault(), void respond("deny"))}>
      <p class="approval-title">
        <ShieldIcon /> <strong>{approval.call.name}</strong> needs your approval
      </p>
      <pre class="plain" tabIndex={0}>{approval.action.startsWith("--- ") ? <Diff text={approval.action} /> : approval.action}</pre>
      {fields.map(([name, facts]) => (
        <label key={name} class="approval-value">
          {facts.title ?? name}
          <input
            name={name}
            placeholder={facts.description ?? String(facts.default ?? facts.enum?.join(" | ") ?? facts.type ?? "")}
            value={values[name] ?? ""}
            onInput={(event) => setValues(changed(values, name, event.currentTarget.value))}
          />
        </label>
      ))}
      <div class="buttons">
        <button type="button" class="primary" disabled={isDone} onClick={() => void respond("once")}>{approval.values ? "Answer" : "Allow once"}</button>
        {!approval.values && (
          <button type="button" disabled={isDone} title={approval.pattern ? `Always allow ${approval.pattern}` : undefined} onClick={() => void respond("always")}>
            Always allow{approval.pattern ? <> <code>{approval.pattern}</code></> : " in this session"}
          </button>
        )}
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
