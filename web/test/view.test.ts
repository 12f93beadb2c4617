import assert from "node:assert/strict";
import { test } from "node:test";
import type { NoticeView } from "../src/api/generated";
import type { History, MessageView } from "../src/api/types";
import type { Envelope, SessionEvent } from "../src/state/envelopes";
import { TurnList } from "../src/state/turns";
import { applyEnvelope, mergeHistory, prependOlder, openView, shownNotices, type View, withState, withSent } from "../src/state/view";

const EMPTY: History = { messages: [], more: false, system: "", head: "root", seq: 0, queue: [], approvals: [], running: null };

function said(node: string, parent: string | null, role: "user" | "assistant", text: string): MessageView {
  return {
    node, parent, role, source: "", blocks: [{ type: "text", text }], model: "", usage: null, usd: null, stop: "", seconds: 0, created_at: 0,
    bookmark: "", tags: [], siblings: [node],
  };
}

function play(view: View, facts: SessionEvent[], now = 0): View {
  return facts.reduce((after, fact) => applyEnvelope(after, { ...fact, seq: after.seq + 1, session: "S" } as Envelope, now), view);
}

const TURN: SessionEvent[] = [
  { type: "message_stored", data: { node: "n1", parent: "root", message: { role: "user", blocks: [{ type: "text", text: "hi" }] } } },
  { type: "turn_started", data: { turn: "t1", model: "loom/spark" } },
  { type: "step_started", data: { step: 1, model: "loom/spark" } },
  { type: "thinking", data: { text: "let me ", index: 0 } },
  { type: "thinking", data: { text: "see", index: 0 } },
  { type: "text", data: { text: "Hello ", index: 1 } },
  { type: "text", data: { text: "there", index: 1 } },
];

test("deltas grow the live answer, and the stored message takes its place", () => {
  const live = play(openView("S", EMPTY, 0), TURN);
  const [turn] = new TurnList().of(live);
  assert.equal(turn?.isLive, true);
  assert.deepEqual(turn?.parts.map((part) => (part.kind === "text" || part.kind === "thinking" ? part.text : "")), ["let me see", "Hello there"]);
  const done = play(live, [
    { type: "message_stored", data: { node: "n2", parent: "n1", message: { role: "assistant", blocks: [{ type: "thinking", text: "let me see" }, { type: "text", text: "Hello there" }] } } },
    { type: "step_finished", data: { step: 1, usage: { input_tokens: 5, output_tokens: 2 }, seconds: 0.5, stop: "end", usd: 0 } },
    { type: "turn_finished", data: { turn: "t1", node: "n2", stop: "end", usage: {} } },
  ]);
  const [after] = new TurnList().of(done);
  assert.equal(after?.isLive, false);
  assert.equal(after?.parts.length, 2);
  assert.deepEqual(after?.usage, { input_tokens: 5, output_tokens: 2 });
  assert.equal(done.head, "n2");
  assert.ok(done.refreshes > 0);
});

test("an envelope that is not newer than the view changes nothing", () => {
  const view = play(openView("S", EMPTY, 0), TURN);
  const again: Envelope = { type: "text", seq: view.seq, session: "S", data: { text: "twice", index: 1 } };
  assert.equal(applyEnvelope(view, again, 0), view);
  assert.equal(applyEnvelope(view, { ...again, seq: view.seq + 1, session: "other" }, 0), view);
});

test("a joined envelope carries the last number of what it joins, and the next one still counts", () => {
  const view = play(openView("S", EMPTY, 0), TURN.slice(0, 3));
  const first = applyEnvelope(view, { type: "text", seq: view.seq + 7, session: "S", data: { text: "seven joined", index: 0 } }, 0);
  const second = applyEnvelope(first, { type: "text", seq: view.seq + 8, session: "S", data: { text: " and one", index: 0 } }, 0);
  assert.equal(second.live?.drafts[0]?.text, "seven joined and one");
});

type Partial = NonNullable<History["running"]>["partial"][number];

test("a snapshot in mid-turn plus what follows equals having watched from the start", () => {
  const rest: SessionEvent[] = [
    { type: "text", data: { text: "!", index: 1 } },
    { type: "message_stored", data: { node: "n2", parent: "n1", message: { role: "assistant", blocks: [{ type: "text", text: "Hello there!" }] } } },
    { type: "turn_finished", data: { turn: "t1", node: "n2", stop: "end", usage: {} } },
  ];
  const watched = play(play(openView("S", EMPTY, 0), TURN), rest);
  for (let cut = 2; cut <= TURN.length; cut++) {
    const history: History = {
      ...EMPTY,
      messages: [said("n1", "root", "user", "hi")],
      head: "n1",
      seq: cut,
      running: { turn: "t1", model: "loom/spark", partial: TURN.slice(2, cut).map((fact, at) => ({ ...fact, data: { ...fact.data, type: fact.type } as Partial["data"], seq: at + 3, session: "S" })) },
    };
    const joined = play(openView("S", history, 0), [...TURN.slice(cut), ...rest]);
    assert.deepEqual(joined.messages.map((one) => [one.node, one.blocks]), watched.messages.map((one) => [one.node, one.blocks]));
    assert.equal(joined.live, null);
    assert.equal(joined.seq, watched.seq);
  }
});

test("an edited message takes the place of what followed its parent", () => {
  const history: History = { ...EMPTY, messages: [said("a", null, "user", "one"), said("b", "a", "assistant", "two"), said("c", "b", "user", "three")], head: "c", seq: 9 };
  const view = play(openView("S", history, 0), [
    { type: "message_stored", data: { node: "c2", parent: "b", message: { role: "user", blocks: [{ type: "text", text: "three, better" }] } } },
  ]);
  assert.deepEqual(view.messages.map((one) => one.node), ["a", "b", "c2"]);
  assert.ok(view.refreshes > 0);
  const lost = play(view, [{ type: "message_stored", data: { node: "z", parent: "unknown", message: { role: "user", blocks: [{ type: "text", text: "?" }] } } }]);
  assert.equal(lost.isStale, true);
  const anew = play(view, [{ type: "message_stored", data: { node: "a2", parent: null, message: { role: "user", blocks: [{ type: "text", text: "one, better" }] } } }]);
  assert.deepEqual(anew.messages.map((one) => one.node), ["a2"]);
});

test("a tool call shows its progress, its approval and its pictures", () => {
  const call = { type: "tool_call" as const, id: "c1", name: "read_file", arguments: { path: "a.png" } };
  const view = play(openView("S", EMPTY, 0), [
    ...TURN.slice(0, 3),
    { type: "call_started", data: { index: 0, id: "c1", name: "read_file" } },
    { type: "call", data: { index: 0, arguments: '{"path": "a' } },
    { type: "call", data: { index: 0, arguments: '.png"}' } },
    { type: "call_finished", data: { index: 0 } },
    { type: "message_stored", data: { node: "n2", parent: "n1", message: { role: "assistant", blocks: [call] } } },
    { type: "tool_started", data: { call } },
    { type: "approval_requested", data: { approval: "ap1", call, action: "read a.png" } },
  ]);
  const waiting = new TurnList().of(view)[0]?.parts[0];
  assert.ok(waiting?.kind === "tool" && waiting.approval?.approval === "ap1" && waiting.result === null);
  const done = play(view, [
    { type: "approval_answered", data: { approval: "ap1", answer: "once" } },
    { type: "tool_progressed", data: { call_id: "c1", text: "half", fraction: 0.5 } },
    { type: "tool_call", data: { call_id: "c1", name: "read_file", arguments: {}, is_error: false, result: { type: "tool_result", call_id: "c1", blocks: [{ type: "text", text: "ok" }] }, seconds: 0.2, images: [] } },
  ]);
  const part = new TurnList().of(done)[0]?.parts[0];
  assert.ok(part?.kind === "tool" && part.approval === null && part.result?.blocks.length === 1 && part.run?.seconds === 0.2);
});

test("turns that did not change keep their identity", () => {
  const history: History = { ...EMPTY, messages: [said("a", null, "user", "one"), said("b", "a", "assistant", "two"), said("c", "b", "user", "three")], head: "c", seq: 3 };
  const turns = new TurnList();
  const view = openView("S", history, 0);
  const before = turns.of(view);
  const after = turns.of(play(view, [{ type: "turn_started", data: { turn: "t", model: "m" } }, { type: "text", data: { text: "x" } }]));
  assert.equal(after[0], before[0]);
  assert.notEqual(after[1], before[1]);
});

test("a later snapshot brings siblings and cost, keeps older pages, and never takes the live answer back", () => {
  const page: History = { ...EMPTY, messages: [said("c", "b", "user", "three"), said("d", "c", "assistant", "four")], head: "d", seq: 10, more: true };
  const paged = prependOlder(openView("S", page, 0), { ...EMPTY, messages: [said("a", null, "user", "one"), said("b", "a", "assistant", "two")] });
  assert.deepEqual(paged.messages.map((one) => one.node), ["a", "b", "c", "d"]);
  const facts: History = { ...page, seq: 12, messages: [said("c", "b", "user", "three"), { ...said("d", "c", "assistant", "four"), siblings: ["d", "d2"] }] };
  const after = mergeHistory(paged, facts, 0);
  assert.deepEqual(after.messages.map((one) => one.node), ["a", "b", "c", "d"]);
  assert.deepEqual(after.messages[3]?.siblings, ["d", "d2"]);
  assert.equal(after.messages[2], paged.messages[2]);
  const ahead = play({ ...after, seq: 20 }, [{ type: "turn_started", data: { turn: "t", model: "m" } }, { type: "text", data: { text: "new" } }]);
  assert.equal(mergeHistory(ahead, facts, 0).live?.drafts[0]?.text, "new");
});

test("what was sent is shown at once, and only once when it comes back", () => {
  const message = { role: "user" as const, blocks: [{ type: "text" as const, text: "hi" }] };
  const sent = withState(withSent(openView("S", EMPTY, 0), "k", message), "k", "accepted");
  assert.equal(sent.sent.length, 1);
  assert.equal(play(sent, TURN.slice(0, 1)).sent.length, 0);
});

test("a message that comes while an answer runs waits in the queue until it is taken", () => {
  const message = { role: "user" as const, blocks: [{ type: "text" as const, text: "and then?" }] };
  const busy = withSent(play(openView("S", EMPTY, 0), TURN), "k", message);
  const queued = play(busy, [{ type: "message_queued", data: { id: "q1", message } }]);
  assert.deepEqual([queued.sent.length, queued.queue.map((one) => one.message)], [0, ["q1"]]);
  const taken = play(queued, [
    { type: "turn_finished", data: { turn: "t1", node: "n1", stop: "end", usage: {} } },
    { type: "message_stored", data: { node: "n3", parent: "n1", message } },
  ]);
  assert.equal(taken.queue.length, 0);
});

test("a message that steers the running answer says so, also after a refresh that is older than the events", () => {
  const message = { role: "user" as const, blocks: [{ type: "text" as const, text: "look at the log first" }] };
  const busy = play(openView("S", EMPTY, 0), TURN);
  const queued = play(busy, [{ type: "message_queued", data: { id: "q1", message, steers: true } }]);
  assert.deepEqual(mergeHistory(queued, EMPTY, 0).queue.map((one) => one.steers), [true]);
});

test("a failed turn keeps its reason, and the next turn clears it", () => {
  const failed = play(openView("S", EMPTY, 0), [...TURN, { type: "turn_failed", data: { turn: "t1", code: "provider.overloaded", text: "busy", hint: "wait" } }]);
  assert.equal(failed.failure?.message, "busy");
  assert.equal(failed.live, null);
  assert.equal(play(failed, TURN.slice(1, 2)).failure, null);
});

const PARTIAL: SessionEvent[] = TURN;

function partsOf(view: View): [string, string][] {
  return new TurnList().of(view).flatMap((turn) => turn.parts.map((part): [string, string] => [part.kind, "text" in part ? part.text : ""]));
}

test("streamed words stay when a turn ends, restarts or a step begins again before they are stored", () => {
  const live = play(openView("S", EMPTY, 0), PARTIAL);
  const ways: Record<string, SessionEvent[]> = {
    failed: [{ type: "turn_failed", data: { turn: "t1", code: "turn.interrupted", text: "interrupted", hint: "" } }],
    restarted: [{ type: "turn_started", data: { turn: "t1", model: "m" } }],
    "asked again": [{ type: "step_started", data: { step: 1, model: "m" } }],
    continued: [{ type: "notice", data: { text: "Continued after a restart", code: "turn.continued" } }],
  };
  for (const [name, events] of Object.entries(ways)) {
    const seen = partsOf(play(live, events)).map(([, text]) => text);
    assert.ok(seen.includes("Hello there"), name);
  }
  const snapshot: History = { ...EMPTY, messages: [said("n1", "root", "user", "hi")], head: "n1", seq: 99 };
  assert.ok(partsOf(mergeHistory(live, snapshot, 0)).some(([, text]) => text === "Hello there"));
});

test("words that the server stored are not shown twice", () => {
  const live = play(openView("S", EMPTY, 0), PARTIAL);
  const sealed: SessionEvent = { type: "message_stored", data: { node: "n2", parent: "n1", message: { role: "assistant", blocks: [{ type: "text", text: "Hello there" }] } } };
  const again = play(live, [{ type: "turn_started", data: { turn: "t1", model: "m" } }, sealed]);
  assert.deepEqual(partsOf(again), [["text", "Hello there"]]);
  const snapshot: History = { ...EMPTY, messages: [said("n1", "root", "user", "hi"), said("n2", "n1", "assistant", "Hello there")], head: "n2", seq: 99 };
  assert.deepEqual(partsOf(mergeHistory(live, snapshot, 0)), [["text", "Hello there"]]);
});

test("a continued turn shows its earlier words, the notice and the words that follow, in that order", () => {
  const view = play(openView("S", EMPTY, 0), [
    ...PARTIAL.filter((event) => event.type !== "thinking"),
    { type: "notice", data: { text: "Continued after a restart", code: "turn.continued" } },
    { type: "step_started", data: { step: 1, model: "loom/spark" } },
    { type: "text", data: { text: "and on", index: 0 } },
  ]);
  assert.deepEqual(partsOf(view), [["partial", "Hello there"], ["notice", "Continued after a restart"], ["text", "and on"]]);
  const [turn] = new TurnList().of(view);
  assert.equal(turn?.isLive, true);
});

test("an answer that was stopped, interrupted or stored incomplete says so, and a complete one does not", () => {
  const live = play(openView("S", EMPTY, 0), PARTIAL);
  const ended = (code: string): string | undefined => new TurnList().of(play(live, [{ type: "turn_failed", data: { turn: "t1", code, text: "x", hint: "" } }]))[0]?.ending;
  assert.deepEqual(["turn.cancelled", "turn.interrupted", "provider.overloaded"].map(ended), ["stopped", "interrupted", ""]);
  const stored = (stop: string): string | undefined => new TurnList().of(openView("S", { ...EMPTY, messages: [said("a", null, "user", "one"), { ...said("b", "a", "assistant", "two"), stop }], head: "b" }, 0))[0]?.ending;
  assert.deepEqual(["end", "incomplete", "cancelled", "interrupted", ""].map(stored), ["", "incomplete", "stopped", "interrupted", ""]);
  const alone: History = { ...EMPTY, messages: [said("a", null, "user", "one")], head: "a" };
  assert.equal(new TurnList().of(openView("S", alone, 0))[0]?.ending, "unanswered");
});

test("a failed turn has a card or a note, never both, whatever is stored of its answer", () => {
  const failure = (code: string): History["failure"] => ({ type: "turn_failed", turn: "t1", code, text: "x" });
  for (const stop of ["end", "incomplete", "cancelled", "interrupted", ""]) {
    for (const [code, ending] of [["provider.unavailable", ""], ["turn.cancelled", "stopped"], ["turn.interrupted", "interrupted"]] as const) {
      const messages = [said("a", null, "user", "one"), { ...said("b", "a", "assistant", "two"), stop }];
      for (const stored of [messages, messages.slice(0, 1)]) {
        const view = openView("S", { ...EMPTY, messages: stored, head: stored.at(-1)!.node, failure: failure(code) }, 0);
        assert.equal(new TurnList().of(view)[0]?.ending, ending, `${stop} ${code}`);
      }
    }
  }
});

test("a notice that a turn repeats is shown once", () => {
  const notice = (text: string): SessionEvent => ({ type: "notice", data: { text, code: "" } });
  const view = play(openView("S", EMPTY, 0), [...TURN, notice("smaller"), notice("as text"), notice("smaller"), notice("as text")]);
  assert.deepEqual(view.notices, ["smaller", "as text"]);
});

test("a notice about a message, which comes before its turn starts, is shown until the next turn", () => {
  const notice = (text: string): SessionEvent => ({ type: "notice", data: { text, code: "" } });
  const end: SessionEvent = { type: "turn_finished", data: { turn: "t1", node: "n1", stop: "end", usage: {} } };
  const ended = play(openView("S", EMPTY, 0), [notice("first"), ...TURN, notice("both"), end]);
  assert.deepEqual(shownNotices(ended), ["first", "both"]);
  const before = play(ended, [notice("both"), notice("second")]);
  assert.deepEqual(shownNotices(before), ["first", "both", "second"]);
  const started: SessionEvent = { type: "turn_started", data: { turn: "t2", model: "loom/spark" } };
  const history: History = { ...EMPTY, seq: before.seq, notices: [["first", false], ["both", true], ["second", true]].map(([text, is_early]) => ({ text, code: "", after: "n1", is_early }) as NoticeView) };
  for (const view of [before, mergeHistory(before, history, 0), openView("S", history, 0)]) {
    assert.deepEqual(shownNotices(view), ["first", "both", "second"]);
    assert.deepEqual(shownNotices(play(view, [started])), ["both", "second"]);
  }
  const failed = play(before, [{ type: "turn_failed", data: { turn: "t2", code: "config", text: "no such model" } }]);
  assert.deepEqual(shownNotices(failed), ["both", "second"], "a turn may end before it starts");
  assert.deepEqual(shownNotices(play(failed, [started])), []);
});

test("pausing and resuming change a queued message in place, and a new message takes no paused one from the list", () => {
  const queued = (id: string, paused = false): SessionEvent => ({ type: "message_queued", data: { id, paused, message: { role: "user", blocks: [{ type: "text", text: id }] } } });
  const stopped = play(openView("S", EMPTY, 0), [...TURN, queued("a"), queued("b"), queued("a", true), queued("b", true)]);
  assert.deepEqual(stopped.queue.map((one) => [one.message, one.paused]), [["a", true], ["b", true]]);
  const other: SessionEvent = { type: "message_stored", data: { node: "n9", parent: "n1", message: { role: "user", blocks: [{ type: "text", text: "other" }] } } };
  assert.equal(play(stopped, [other]).queue.length, 2);
  assert.deepEqual(play(stopped, [queued("b")]).queue.map((one) => one.paused), [true, false]);
});

test("a notice of a continued turn is shown once, however often a snapshot brings it", () => {
  const notice: SessionEvent = { type: "notice", data: { text: "Continued after a restart", code: "turn.continued" } };
  const seen = play(openView("S", EMPTY, 0), [...PARTIAL.filter((event) => event.type !== "thinking"), notice]);
  const running = { turn: "t1", model: "loom/spark", partial: [{ ...notice, data: { ...notice.data, type: "notice" } as Partial["data"], seq: 50, session: "S" }] };
  const snapshot = (seq: number): History => ({ ...EMPTY, messages: [said("n1", "root", "user", "hi")], head: "n1", seq, running });
  let view = seen;
  for (const seq of [60, 61, 62]) {
    view = mergeHistory(view, snapshot(seq), 0);
    assert.equal(partsOf(view).filter(([kind]) => kind === "notice").length, 1);
  }
});

test("an answer that was cut anywhere and continued is one text with a notice, stored or live, however often it was cut", () => {
  const whole = "Do this:\n\n```sh\nmake run\n```\n\nThen *look* at it.";
  const asked = said("a", null, "user", "one");
  for (let first = 1; first < whole.length - 1; first += 1) {
    const second = first + Math.ceil((whole.length - first) / 2);
    const cut = [{ ...said("b", "a", "assistant", whole.slice(0, first)), stop: "interrupted" }, { ...said("c", "b", "assistant", whole.slice(first, second)), stop: "interrupted" }];
    const rest = whole.slice(second);
    const stored = openView("S", { ...EMPTY, messages: [asked, ...cut, { ...said("d", "c", "assistant", rest), stop: "end" }], head: "d" }, 0);
    const running = play(openView("S", { ...EMPTY, messages: [asked, ...cut], head: "c" }, 0), [{ type: "turn_started", data: { turn: "t1", model: "m" } }, { type: "text", data: { text: rest, index: 0 } }]);
    for (const view of [stored, running]) {
      assert.deepEqual(partsOf(view), [["text", whole], ["notice", "Continued after an interruption."]]);
      assert.equal(new TurnList().of(view)[0]?.ending, "");
    }
  }
});

test("a turn that was stopped while tools ran is incomplete; one that a message steered is not, and only the last can be continued", () => {
  const call: MessageView = { ...said("b", "a", "assistant", ""), blocks: [{ type: "tool_call", id: "c1", name: "look" }], stop: "tool_calls" };
  const result = { ...said("c", "b", "user", "x"), role: "tool", blocks: [{ type: "tool_result", call_id: "c1", blocks: [{ type: "text", text: "interrupted" }] }] } as MessageView;
  const asked = said("a", null, "user", "one");
  const turnsOf = (messages: MessageView[]) => new TurnList().of(openView("S", { ...EMPTY, messages, head: messages.at(-1)?.node ?? "" }, 0)).map((turn) => [turn.ending, turn.isLast]);
  assert.deepEqual(turnsOf([asked, call, result]), [["incomplete", true]]);
  assert.deepEqual(turnsOf([asked, call, result, said("d", "c", "user", "and this"), said("e", "d", "assistant", "done")]), [["", false], ["", true]]);
});
