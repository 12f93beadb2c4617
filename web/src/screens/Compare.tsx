// Several ends side by side, from where they part.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask } from "../api/http";
import { isMedia } from "../api/blocks";
import type { History, MessageView, Tree } from "../api/shapes";
import { Dialog } from "../parts/Dialog";
import { Markdown } from "../parts/Markdown";
import { Medium } from "../parts/Medium";
import { compared, sessionId } from "../state/app";
import { newestLeaf, parting } from "../state/branches";
import { report } from "../state/sessions";
import { moveHead } from "../state/turn";
import { plural, shortModel } from "../state/words";

export function Compare() {
  const tree = useSignal<Tree | null>(null);
  useEffect(() => {
    ask<Tree>(`/sessions/${sessionId.value}/tree`).then((found) => (tree.value = found), report);
  }, []);
  const close = (): void => {
    compared.value = [];
  };
  const found = tree.value;
  const ends = found ? compared.value.map((node) => newestLeaf(found, node)) : [];
  const parted = found ? parting(found, ends) : { shared: 0, own: [] };
  return (
    <Dialog title="Side by side" kind="wide" onClose={close}>
      <p class="dim">{found ? `All share ${plural(Math.max(0, parted.shared - 1), "message")}; here is what follows.` : "Loading…"}</p>
      <div class="compare" tabIndex={0} role="group" aria-label="Ends">
        {ends.map((end, index) => (
          <Side key={end} end={end} own={parted.own[index] ?? []} isHere={end === found?.head} onGo={() => (close(), void moveHead(end))} />
        ))}
      </div>
    </Dialog>
  );
}

function Side({ end, own, isHere, onGo }: { end: string; own: string[]; isHere: boolean; onGo: () => void }) {
  const messages = useSignal<MessageView[]>([]);
  useEffect(() => {
    ask<History>(`/sessions/${sessionId.value}/messages?head=${encodeURIComponent(end)}&limit=200`).then((found) => (messages.value = found.messages), report);
  }, [end]);
  const mine = new Set(own);
  return (
    <section class="side">
      {!own.length && <p class="empty">Ends where they part.</p>}
      {messages.value.filter((one) => mine.has(one.node)).map((one) => (
        <article key={one.node} class={one.role === "user" ? "said" : "answer"}>
          <h3>{one.role === "user" ? "You" : one.role === "tool" ? "tools" : shortModel(one.model ?? "")}</h3>
          {one.blocks.map((block, index) => (block.type === "text" ? <Markdown key={index} text={block.text} /> : isMedia(block) ? <Medium key={index} block={block} /> : block.type === "tool_call" ? <p key={index} class="dim">⚒ {block.name}</p> : null))}
        </article>
      ))}
      <div class="buttons">{isHere ? <span class="dim">you are here</span> : <button type="button" onClick={onGo}>Go on from here</button>}</div>
    </section>
  );
}
