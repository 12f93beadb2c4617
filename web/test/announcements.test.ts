import assert from "node:assert/strict";
import { test } from "node:test";
import type { History, MessageView } from "../src/api/types";
import { announceChange, describeChange } from "../src/state/announcements";
import { announcement } from "../src/state/app";
import type { Envelope, SessionEvent } from "../src/state/envelopes";
import { applyEnvelope, mergeHistory, openView, type View } from "../src/state/view";

const EMPTY: History = { messages: [], more: false, system: "", head: "root", seq: 0, queue: [], approvals: [], running: null };
const call = { type: "tool_call" as const, id: "c1", name: "read_file", arguments: {} };

function said(node: string, parent: string, role: "user" | "assistant", text: string): MessageView {
  return {
    node, parent, role, source: "", blocks: [{ type: "text", text }], model: "", usage: null, usd: null, stop: "", seconds: 0, created_at: 0,
    bookmark: "", tags: [], siblings: [node],
  };
}

const QUESTION = said("n1", "root", "user", "hi");
const ANSWER = said("n2", "n1", "assistant", "one two three");
const BEGIN: SessionEvent[] = [
  { type: "message_stored", data: { node: "n1", parent: "root", message: { role: "user", blocks: QUESTION.blocks } } },
  { type: "turn_started", data: { turn: "t1", model: "loom/spark" } },
  { type: "notice", data: { text: "The image was shrunk", code: "receipt" } },
  { type: "approval_requested", data: { approval: "ap1", call, action: "read" } },
  { type: "approval_answered", data: { approval: "ap1", answer: "once" } },
];
const STORED: SessionEvent = { type: "message_stored", data: { node: "n2", parent: "n1", message: { role: "assistant", blocks: ANSWER.blocks } } };
const ENDS: [string, SessionEvent[], Partial<History>][] = [
  ["Done, 3 words", [STORED, { type: "turn_finished", data: { turn: "t1", node: "n2", stop: "end", usage: {} } }], { messages: [QUESTION, ANSWER], head: "n2" }],
  ["Answer stopped", [STORED, { type: "turn_failed", data: { turn: "t1", code: "turn.cancelled", text: "Stopped" } }], { messages: [QUESTION, ANSWER], head: "n2", failure: { type: "turn_failed", turn: "t1", code: "turn.cancelled", text: "Stopped" } }],
  ["Answer failed: no key", [{ type: "turn_failed", data: { turn: "t1", code: "provider.unauthorized", text: "no key" } }], { messages: [QUESTION], head: "n1", failure: { type: "turn_failed", turn: "t1", code: "provider.unauthorized", text: "no key" } }],
];

/** Return what is heard while the view changes through these steps. */
function listen(steps: ((view: View) => View)[]): string[] {
  let view = openView("S", EMPTY, 0);
  return steps.flatMap((step) => {
    const before = view;
    view = step(before);
    return describeChange(before, view);
  });
}

for (const [end, events, facts] of ENDS) {
  test(`wherever a snapshot comes between the events, the end is heard once: ${end}`, () => {
    const all = [...BEGIN, ...events];
    const play = all.map((event, at) => (view: View) => applyEnvelope(view, { ...event, seq: at + 1, session: "S" } as Envelope, 0));
    const snapshot = (view: View): View => mergeHistory(view, { ...EMPTY, ...facts, notices: [{ text: "The image was shrunk", code: "receipt", after: "n1" }], seq: all.length }, 0);
    for (let at = 0; at <= all.length; at++) {
      const heard = listen([...play.slice(0, at), snapshot, ...play.slice(at)]);
      assert.deepEqual(heard.filter((text) => text === end), [end], `snapshot at ${at}: ${heard.join(", ")}`);
      assert.equal(heard.at(-1), end, `snapshot at ${at}: ${heard.join(", ")}`);
      assert.equal(heard.filter((text) => text === "The image was shrunk").length, 1);
      assert.equal(heard.filter((text) => text === "loom/spark is answering").length, at >= 2 ? 1 : 0);
      assert.equal(heard.filter((text) => text === "Approval pending: read_file").length, at >= 4 ? 1 : 0);
    }
  });
}

test("nothing is heard where nothing is new", () => {
  const view = openView("S", { ...EMPTY, messages: [QUESTION, ANSWER], head: "n2", seq: 9 }, 0);
  assert.deepEqual(describeChange(view, mergeHistory(view, { ...EMPTY, messages: [QUESTION, ANSWER], head: "n2", seq: 9 }, 0)), []);
  const branch = mergeHistory(view, { ...EMPTY, messages: [QUESTION, said("n3", "n1", "assistant", "other")], head: "n3", seq: 10 }, 0);
  assert.deepEqual(describeChange(view, branch), [], "another branch is no new answer");
});

test("each failure is heard once, also if it has the same text as the one before", () => {
  const failed = (seq: number) => (view: View) => applyEnvelope(view, { type: "turn_failed", data: { turn: "", code: "budget.spent", text: "no money" }, seq, session: "S" } as Envelope, 0);
  const snapshot = (view: View): View => mergeHistory(view, { ...EMPTY, failure: { type: "turn_failed", turn: "", code: "budget.spent", text: "no money" }, seq: view.seq }, 0);
  assert.deepEqual(listen([failed(1), snapshot, failed(2), snapshot, snapshot]), ["Answer failed: no money", "Answer failed: no money"]);
});

test("all that a snapshot brings is announced as one text, since each text replaces the one before", () => {
  const before = openView("S", EMPTY, 0);
  const approvals = [{ type: "approval_requested" as const, approval: "ap1", call, action: "read" }];
  announceChange(before, mergeHistory(before, { ...EMPTY, seq: 3, running: { turn: "t1", model: "loom/spark", partial: [] }, approvals }, 0));
  assert.equal(announcement.value, "loom/spark is answering, Approval pending: read_file");
});
