// The conversation. It scrolls with the answer while the end is in view, and stops when the user scrolls up.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { problem, linkedMessage, turns, view } from "../state/app";
import { loadOlder } from "../state/sessions";
import { DownIcon } from "../parts/icons";
import { deferred } from "../parts/components";
import { Composer } from "./Composer";
import { Notices, SentMessages } from "./Pending";
import { TurnView } from "./TurnView";
import { shownNotices, waitingMessages } from "../state/view";

const PausedMessages = deferred((found) => found.PausedMessages);
const ActivityBar = deferred((found) => found.ActivityBar);
const QueuedMessages = deferred((found) => found.QueuedMessages);
const TurnFailure = deferred((found) => found.TurnFailure);
const NEAR_PX = 80;
/** Turns that are rendered at first, and then in each further task: a long conversation must not block the page. */
const FIRST_TURNS = 2;
const TURNS_PER_TASK = 4;
/** Shown in the turn itself. */
const ENDED_CODES = new Set(["turn.cancelled", "turn.interrupted"]);

export function ChatPane() {
  const scroller = useRef<HTMLDivElement>(null);
  const top = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const last = useRef({ top: 0, height: 0 });
  const isBehind = useSignal(false);
  // A message that was just sent is always followed.
  const sentCount = view.value?.sent.length ?? 0;
  const sentBefore = useRef(0);
  if (sentCount > sentBefore.current) follows.current = true;
  sentBefore.current = sentCount;
  const seen = view.value;

  const rendered = useSignal(FIRST_TURNS);
  if (linkedMessage.value) rendered.value = Infinity;
  const isWhole = turns.value.length <= rendered.value;
  useEffect(() => {
    if (!seen || rendered.value === Infinity) return;
    if (isWhole) rendered.value = Infinity;
    const timer = setTimeout(() => (rendered.value += TURNS_PER_TASK));
    return () => clearTimeout(timer);
  }, [seen === null, rendered.value]);

  const before = useRef({ first: "", height: 0 });
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const first = seen?.messages[0]?.node ?? "";
    // What is seen must not move when the turns above it come.
    if (seen && !isWhole && element.scrollHeight <= element.clientHeight) rendered.value += TURNS_PER_TASK;
    if (follows.current) element.scrollTop = element.scrollHeight;
    // The browser keeps the scroll position when content is added above, except at the very top.
    else if (first !== before.current.first && element.scrollTop < 2) element.scrollTop += element.scrollHeight - before.current.height;
    before.current = { first, height: element.scrollHeight };
  });
  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    // Images and pages that load late must not push the end out of view.
    const grown = new ResizeObserver(() => {
      if (follows.current) element.scrollTop = element.scrollHeight;
    });
    for (const part of [element, ...element.children]) grown.observe(part);
    const near = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && void loadOlder(), { root: element, rootMargin: "3000px 0px 0px" });
    if (top.current && isWhole) near.observe(top.current);
    return () => {
      grown.disconnect();
      near.disconnect();
    };
  }, [seen === null, isWhole, seen?.messages[0]?.node]);

  useEffect(() => {
    if (!linkedMessage.value || !seen) return;
    const linked = linkedMessage.value;
    void import("./deferred").then(({ showMessage }) => showMessage(linked, follows));
    linkedMessage.value = "";
  }, [linkedMessage.value, seen === null]);

  const onScroll = (): void => {
    const element = scroller.current;
    if (!element) return;
    const { scrollTop, scrollHeight, clientHeight } = element;
    const isNear = scrollHeight - scrollTop - clientHeight < NEAR_PX;
    // Content that grows also moves the end away; only a user scrolls up.
    const isUserUp = scrollTop < last.current.top - 2 && scrollHeight >= last.current.height;
    if (isNear) follows.current = true;
    else if (isUserUp) follows.current = false;
    last.current = { top: scrollTop, height: scrollHeight };
    isBehind.value = !isNear && !follows.current;
  };
  const toEnd = (): void => {
    const element = scroller.current;
    if (!element) return;
    follows.current = true;
    element.scrollTo({ top: element.scrollHeight, behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  };
  return (
    <>
      <div class="chat" ref={scroller} onScroll={onScroll} tabIndex={-1}>
        <div class="column">
          <div ref={top} class="top-mark">{seen?.more && isWhole && <p class="dim">Loading earlier messages…</p>}</div>
          {!seen && !problem.value && <Skeleton />}
          {seen && !seen.messages.length && !seen.sent.length && !seen.live && <p class="empty">No messages yet.</p>}
          {turns.value.slice(isWhole ? 0 : -rendered.value).map((turn) => (
            <TurnView key={turn.key} turn={turn} />
          ))}
          {seen && (
            <>
              <SentMessages sent={seen.sent} />
              <Notices notices={shownNotices(seen)} />
              {seen.failure && !ENDED_CODES.has(seen.failure.code) && <TurnFailure failure={seen.failure} />}
              {seen.live && waitingMessages(seen).length > 0 && <QueuedMessages queue={waitingMessages(seen)} />}
              {seen.queue.some((one) => one.paused) && <PausedMessages paused={seen.queue.filter((one) => one.paused)} />}
            </>
          )}
        </div>
      </div>
      <div class="chat-end">
        {isBehind.value && (
          <button type="button" class="chip to-end" onClick={toEnd}>
            <DownIcon /> Jump to latest
          </button>
        )}
      </div>
      {turns.value.some((turn) => turn.parts.some((part) => part.kind === "tool")) && <ActivityBar />}
      <Composer />
    </>
  );
}

function Skeleton() {
  return (
    <div class="skeleton" aria-label="Loading">
      <div />
      <div />
      <div />
    </div>
  );
}
