// The conversation. It follows the answer while the end is in sight, and lets go when somebody scrolls up.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { announce, problem, sought, turns, view } from "../state/app";
import { seek } from "../state/seek";
import { loadOlder } from "../state/sessions";
import { DownIcon } from "../parts/icons";
import { later } from "../parts/memo";
import { Composer } from "./Composer";
import { Notices, SentMessages } from "./Pending";
import { TurnView } from "./TurnView";

const QueuedMessages = later(() => import("./opened").then((found) => found.QueuedMessages));
const Failure = later(() => import("./opened").then((found) => found.Failure));
const NEAR_PX = 80;

export function ChatPane() {
  const scroller = useRef<HTMLDivElement>(null);
  const top = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const isBehind = useSignal(false);
  const seen = view.value;

  const before = useRef({ first: "", height: 0 });
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const first = seen?.messages[0]?.node ?? "";
    if (follows.current) element.scrollTop = element.scrollHeight;
    // The browser keeps the place when something comes in above, except at the very top.
    else if (first !== before.current.first && element.scrollTop < 2) element.scrollTop += element.scrollHeight - before.current.height;
    before.current = { first, height: element.scrollHeight };
  });
  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    // Pictures and pages that arrive late must not push the end out of sight.
    const grown = new ResizeObserver(() => {
      if (follows.current) element.scrollTop = element.scrollHeight;
    });
    for (const part of [element, ...element.children]) grown.observe(part);
    const near = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && void loadOlder(), { root: element, rootMargin: "3000px 0px 0px" });
    if (top.current) near.observe(top.current);
    return () => {
      grown.disconnect();
      near.disconnect();
    };
  }, [seen === null, seen?.messages[0]?.node]);

  useEffect(() => {
    if (!sought.value || !seen) return;
    follows.current = false;
    void seek(sought.value).then((node) => requestAnimationFrame(() => lead(scroller.current?.querySelector<HTMLElement>(`[data-node="${CSS.escape(node)}"]`))));
    sought.value = "";
  }, [sought.value, seen === null]);

  const onScroll = (): void => {
    const element = scroller.current;
    if (!element) return;
    const isNear = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_PX;
    follows.current = isNear;
    isBehind.value = !isNear;
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
          <div ref={top} class="top-mark">{seen?.more && <p class="dim">Earlier messages…</p>}</div>
          {!seen && !problem.value && <Skeleton />}
          {seen && !seen.messages.length && !seen.sent.length && !seen.live && <p class="empty">Nothing has been said here yet.</p>}
          {turns.value.map((turn) => (
            <TurnView key={turn.key} turn={turn} />
          ))}
          {seen && (
            <>
              <SentMessages sent={seen.sent} />
              <Notices notices={seen.notices} />
              {seen.failure && <Failure failure={seen.failure} />}
              {seen.live && seen.queue.length > 0 && <QueuedMessages queue={seen.queue} />}
            </>
          )}
        </div>
      </div>
      <div class="chat-end">
        {isBehind.value && (
          <button type="button" class="chip to-end" onClick={toEnd}>
            <DownIcon /> Newest
          </button>
        )}
      </div>
      <Composer />
    </>
  );
}

/** To a message that a link named. */
function lead(found: HTMLElement | null | undefined): void {
  if (!found) return;
  found.scrollIntoView({ block: "center" });
  // What comes into sight gets its real height only now.
  requestAnimationFrame(() => found.scrollIntoView({ block: "center" }));
  found.tabIndex = -1;
  found.focus({ preventScroll: true });
  found.classList.add("sought");
  announce("Here is the message");
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
