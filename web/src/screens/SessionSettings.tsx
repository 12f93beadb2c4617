// How this session answers: thinking, temperature, agent, tools, system prompt. Applies from the next message on.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { request, ApiError } from "../api/http";
import type { AgentView, NewSession, SessionView, ToolView } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { Field } from "../parts/Field";
import { announce, dialog, info, model, modelInfo, sessionDraft, sessionId, view } from "../state/app";
import { discardText } from "../state/estimate_text";
import { shortModel } from "../state/format";
import { planFor } from "../state/plan";
import { putSession, refresh, report } from "../state/sessions";

type Level = NonNullable<NewSession["thinking"]>;
const LEVELS: [Level, string][] = [["", "Automatic"], ["off", "Off"], ["minimal", "Minimal"], ["low", "Low"], ["medium", "Medium"], ["high", "High"], ["xhigh", "Very high"], ["max", "Maximum"]];
const ALL = ["*"];

interface Wanted {
  thinking: Level;
  temperature: string;
  agent: string;
  tools: string[];
  system: string;
  plan_mode: boolean;
}

function current(): Wanted {
  const session = info.value;
  const draft = sessionDraft.value;
  const options = (session ? session.options : draft.options) ?? {};
  return {
    thinking: (session ? options.thinking : draft.thinking) ?? "",
    temperature: options.temperature == null ? "" : String(options.temperature),
    agent: (session ? session.agent : draft.agent) ?? "",
    tools: (session ? session.tools : draft.tools) ?? ALL,
    system: session ? (view.value?.system ?? "") : (draft.system ?? ""),
    plan_mode: (session ? session.plan_mode : draft.plan_mode) ?? false,
  };
}

const close = (): void => {
  dialog.value = "";
};

export function SessionSettings() {
  const isLoaded = !sessionId.value || (info.value !== null && view.value !== null);
  return (
    <Dialog title="Session settings" kind="settings" onClose={close}>
      {isLoaded ? <SettingsForm /> : <p class="empty">Loading…</p>}
    </Dialog>
  );
}

function SettingsForm() {
  // Only what the user changes is sent.
  const before = useMemo(current, []);
  const wanted = useSignal(before);
  const agents = useSignal<AgentView[]>([]);
  const tools = useSignal<ToolView[]>([]);
  const words = useSignal("");
  const warning = useSignal("");
  useEffect(() => {
    request<{ agents: AgentView[] }>(`/agents?workspace=${encodeURIComponent(info.value?.workspace ?? "")}`).then((found) => (agents.value = found.agents), report);
    request<{ tools: ToolView[] }>("/tools").then((found) => (tools.value = found.tools), report);
  }, []);
  const set = (change: Partial<Wanted>): void => {
    wanted.value = { ...wanted.value, ...change };
  };
  const save = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await apply(wanted.value, before);
      announce("Session settings saved");
      close();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      words.value = `${error.message} ${error.hint}`;
    }
  };
  const { thinking, temperature, agent, system } = wanted.value;
  const isChanged = [system, String(wanted.value.tools)].join() !== [before.system, String(before.tools)].join();
  useEffect(() => {
    warning.value = "";
    if (!sessionId.value || !isChanged) return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      const change = { ...(system !== before.system ? { system } : {}), ...(wanted.value.tools !== before.tools ? { tools: wanted.value.tools } : {}) };
      planFor([model.value], { ...change, limit: 1 }, stop.signal).then(
        (plan) => (warning.value = discardText(plan.models[model.value]?.estimate)),
        (error: unknown) => error instanceof DOMException || report(error),
      );
    }, 300);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [system, wanted.value.tools]);
  const reference = modelInfo.value?.reference ?? "";
  return (
    <form class="settings-body session-settings" onSubmit={(event) => void save(event)}>
      <p class="dim">{sessionId.value ? "For this session, from the next message on." : "For the session that your next message starts."}</p>
      <Field label="Thinking" hint={modelInfo.value?.capabilities.thinking === false && thinking !== "" && thinking !== "off" && `${shortModel(reference)} does not support thinking: the setting applies to models that do.`}>
        {(facts) => (
          <select {...facts} value={thinking} onChange={(event) => set({ thinking: event.currentTarget.value as Level })}>
            {LEVELS.map(([level, name]) => <option key={level} value={level}>{name}</option>)}
          </select>
        )}
      </Field>
      <Field label="Temperature" hint="0 is the most predictable, 2 the most varied. Empty: the model's default.">
        {(facts) => <input {...facts} type="number" min="0" max="2" step="0.1" placeholder="Automatic" value={temperature} onInput={(event) => set({ temperature: event.currentTarget.value })} />}
      </Field>
      <Field label="Agent" hint={agentHint(agents.value, agent)}>
        {(facts) => (
          <select {...facts} value={agent} onChange={(event) => set({ agent: event.currentTarget.value })}>
            <option value="">None</option>
            {agents.value.map((one) => <option key={one.name} value={one.name}>{one.description ? `${one.name}: ${one.description}` : one.name}</option>)}
          </select>
        )}
      </Field>
      <label class="choice">
        <input type="checkbox" checked={wanted.value.plan_mode} onChange={(event) => set({ plan_mode: event.currentTarget.checked })} />{" "}
        <span>Plan mode <small class="dim">Only tools that read, until you approve a plan</small></span>
      </label>
      <Tools tools={tools.value} chosen={wanted.value.tools} onChange={(list) => set({ tools: list })} />
      <Field label="System prompt" hint={sessionId.value ? "Empty: the prompt that the session started with." : "Empty: the default prompt."}>
        {(facts) => <textarea {...facts} rows={4} value={system} placeholder="The default prompt" onInput={(event) => set({ system: event.currentTarget.value })} />}
      </Field>
      {warning.value && <p class="notice" role="status">{warning.value}</p>}
      {words.value && <p role="alert" class="danger">{words.value}</p>}
      <div class="buttons end">
        <button type="button" onClick={close}>Cancel</button>
        <button type="submit" class="primary">Save</button>
      </div>
    </form>
  );
}

/** Where the chosen agent comes from, and what of its file has no effect; without agents, how to define one. */
function agentHint(agents: AgentView[], chosen: string) {
  if (!agents.length) return <>No agents are configured. Add a table <code>[agents.NAME]</code> to <code>loom.toml</code>, or a file <code>.claude/agents/NAME.md</code> to the folder.</>;
  const found = agents.find((one) => one.name === chosen);
  return found && <>Defined in <code>{found.origin}</code>. {found.notices?.join(" ")}</>;
}

function Tools({ tools, chosen, onChange }: { tools: ToolView[]; chosen: string[]; onChange: (list: string[]) => void }) {
  const isAll = chosen.includes("*");
  const allowed = new Set(tools.filter((one) => isAll || chosen.some((pattern) => matches(one.name, pattern))).map((one) => one.name));
  const toggle = (name: string): void => {
    const next = tools.map((one) => one.name).filter((one) => (one === name) !== allowed.has(one));
    onChange(next.length === tools.length ? ALL : next);
  };
  return (
    <details class="field tools">
      <summary>Tools <span class="dim">{isAll ? "all" : `${allowed.size} of ${tools.length}`}</span></summary>
      <div class="buttons">
        <button type="button" class="chip" onClick={() => onChange(ALL)}>Allow all</button>
        <button type="button" class="chip" onClick={() => onChange([])}>Allow none</button>
      </div>
      <ul>
        {tools.map((one) => (
          <li key={one.name}>
            <label class="choice">
              <input type="checkbox" checked={allowed.has(one.name)} onChange={() => toggle(one.name)} /> <span><code>{one.name}</code> <small class="dim">{one.description.split("\n")[0]}</small></span>
            </label>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** As the server matches: `*` and `?` stand for any characters. */
function matches(name: string, pattern: string): boolean {
  const source = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".");
  return new RegExp(`^${source}$`).test(name);
}

async function apply(wanted: Wanted, before: Wanted): Promise<void> {
  const kept = { ...(info.value?.options ?? sessionDraft.value.options ?? {}) };
  delete kept.thinking;
  delete kept.temperature;
  const options = { ...kept, ...(wanted.temperature ? { temperature: Number(wanted.temperature) } : {}), ...(wanted.thinking ? { thinking: wanted.thinking } : {}) };
  if (!sessionId.value) {
    sessionDraft.value = { options, agent: wanted.agent, tools: wanted.tools, system: wanted.system, plan_mode: wanted.plan_mode };
    return;
  }
  const isNew = (name: "agent" | "system" | "tools" | "plan_mode"): boolean => String(wanted[name]) !== String(before[name]);
  const body = {
    options,
    ...(isNew("agent") ? { agent: wanted.agent } : {}),
    ...(isNew("tools") ? { tools: wanted.tools } : {}),
    ...(isNew("system") ? { system: wanted.system } : {}),
    ...(isNew("plan_mode") ? { plan_mode: wanted.plan_mode } : {}),
  };
  putSession(await request<SessionView>(`/sessions/${sessionId.value}`, { method: "PATCH", body }));
  await refresh();
}
