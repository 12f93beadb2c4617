// Two ends side by side, from where they part.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask } from "../api/http";
import { isMedia } from "../api/blocks";
import type { History, MessageView, Tree } from "../api/shapes";
import { Dialog } from "../parts/Dialog";
import { Markdown } from "../parts/Markdown";
import { Medium } from "../parts/Medium";
import { sessionId } from "../state/app";
import { parting } from "../state/branches";
import { report } from "../state/sessions";
import { plural, shortModel } from "../state/words";

export function Compare({ tree, left, right, onClose }: { tree: Tree; left: string; right: string; onClose: () => void }) {
  const parted = parting(tree, left, right);
  return (
    <Dialog title="Side by side" kind="wide" onClose={onClose}>
      <p class="dim">Both share {plural(parted.shared.length, "message")}; here is what follows.</p>
      <div class="compare">
        <Side end={left} own={parted.left} />
        <Side end={right} own={parted.right} />
      </div>
    </Dialog>
  );
}

function Side({ end, own }: { end: string; own: string[] }) {
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
    </section>
  );
}
