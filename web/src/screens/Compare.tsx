// Several branches side by side, from the message where they diverge.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { request } from "../api/http";
import { isMedia } from "../api/blocks";
import type { History, MessageView, Tree } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { Markdown } from "../parts/Markdown";
import { MediaFigure, MessageContent } from "../parts/MediaFigure";
import { compared, sessionId } from "../state/app";
import { newestLeaf, divergence } from "../state/branches";
import { report } from "../state/sessions";
import { moveHead } from "../state/session_actions";
import { plural, shortModel } from "../state/format";

export function Compare() {
  const tree = useSignal<Tree | null>(null);
  useEffect(() => {
    request<Tree>(`/sessions/${sessionId.value}/tree`).then((found) => (tree.value = found), report);
  }, []);
  const close = (): void => {
    compared.value = [];
  };
  const found = tree.value;
  const ends = found ? compared.value.map((node) => newestLeaf(found, node)) : [];
  const diverging = found ? divergence(found, ends) : { shared: 0, own: [] };
  return (
    <Dialog title="Side by side" kind="wide" onClose={close}>
      <p class="dim">{found ? `The branches share ${plural(Math.max(0, diverging.shared - 1), "message")}. Below is what differs.` : "Loading…"}</p>
      <div class="compare" tabIndex={0} role="group" aria-label="Branches">
        {ends.map((end, index) => (
          <Side key={end} end={end} own={diverging.own[index] ?? []} isHere={end === found?.head} onGo={() => (close(), void moveHead(end))} />
        ))}
      </div>
    </Dialog>
  );
}

function Side({ end, own, isHere, onGo }: { end: string; own: string[]; isHere: boolean; onGo: () => void }) {
  const messages = useSignal<MessageView[]>([]);
  useEffect(() => {
    request<History>(`/sessions/${sessionId.value}/messages?head=${encodeURIComponent(end)}&limit=200`).then((found) => (messages.value = found.messages), report);
  }, [end]);
  const mine = new Set(own);
  return (
    <section class="side">
      {!own.length && <p class="empty">No messages after the shared part.</p>}
      {messages.value.filter((one) => mine.has(one.node)).map((one) => (
        <article key={one.node} class={one.role === "user" ? "user-message" : "answer"}>
          <h3>{one.role === "user" ? "You" : one.role === "tool" ? "Tools" : shortModel(one.model ?? "")}</h3>
          {one.role === "user" && <MessageContent blocks={one.blocks} />}
          {one.role !== "user" && one.blocks.map((block, index) => (block.type === "text" ? <Markdown key={index} text={block.text} /> : isMedia(block) ? <MediaFigure key={index} block={block} /> : block.type === "tool_call" ? <p key={index} class="dim">⚒ {block.name}</p> : null))}
        </article>
      ))}
      <div class="buttons">{isHere ? <span class="dim">Current branch</span> : <button type="button" onClick={onGo}>Continue from here</button>}</div>
    </section>
  );
}
