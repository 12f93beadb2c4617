// Every branch of the session. Walk with the arrow keys; go, branch, name, compare. Nothing here destroys anything.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ask, mediaUrl } from "../api/http";
import type { Tree, TreeNode } from "../api/shapes";
import { useFocusReturn } from "../parts/focus";
import { BranchIcon, CloseIcon, ForkIcon, RightIcon, StarIcon } from "../parts/icons";
import { announce, compared, panel, sessionId, view } from "../state/app";
import { leaves } from "../state/branches";
import { focusComposer } from "../state/composer";
import { COLUMN_PX, placed, type Placed, ROW_PX } from "../state/layout";
import { report } from "../state/sessions";
import { fork, moveHead } from "../state/turn";
import { plural, shortModel } from "../state/words";

const MOST_MARKED = 4;
const CARD_PX = { width: 196, height: 48 };

export function Forest() {
  const tree = useSignal<Tree | null>(null);
  const at = useSignal("");
  const marked = useSignal<string[]>([]);
  const names = useSignal(false);
  const unfolded = useSignal<ReadonlySet<string>>(new Set());
  const field = useRef<HTMLDivElement>(null);

  const load = (): Promise<void> =>
    ask<Tree>(`/sessions/${sessionId.value}/tree`).then((found) => {
      tree.value = found;
      at.value ||= found.head ?? found.nodes[0]?.node ?? "";
    }, report);
  useEffect(() => void load(), [sessionId.value, view.value?.head, view.value?.live === null]);
  useFocusReturn(field);
  const places = tree.value ? placed(tree.value, unfolded.value) : [];
  const here = places.find((one) => one.node.node === at.value) ?? places.at(-1);
  useEffect(() => {
    const element = field.current?.querySelector<HTMLElement>(`[data-at="true"]`);
    element?.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (field.current?.contains(document.activeElement) || document.activeElement === document.body) element?.focus();
  }, [at.value, places.length]);

  const go = async (node: string): Promise<void> => {
    if (await moveHead(node)) announce("You are here now");
  };
  const branch = async (node: string): Promise<void> => {
    if (!(await moveHead(node))) return;
    panel.value = "";
    focusComposer();
  };
  const mark = (node: string): void => {
    marked.value = marked.value.includes(node) ? marked.value.filter((one) => one !== node) : [...marked.value.slice(1 - MOST_MARKED), node];
    announce(`${plural(marked.value.length, "node")} marked`);
  };
  const onKey = (event: KeyboardEvent): void => {
    if (!here || names.value) return;
    const beside = places.filter((one) => one.parent === here.parent).sort((a, b) => a.y - b.y);
    const walks: Record<string, Placed | null | undefined> = {
      ArrowLeft: here.parent,
      ArrowRight: places.find((one) => one.parent === here && one.isOnPath) ?? places.find((one) => one.parent === here),
      ArrowUp: beside[beside.indexOf(here) - 1] ?? nearest(places, here, -1),
      ArrowDown: beside[beside.indexOf(here) + 1] ?? nearest(places, here, 1),
    };
    const acts: Record<string, () => unknown> = { Enter: () => go(here.node.node), n: () => branch(here.node.node), v: () => mark(here.node.node), "*": () => (names.value = true), c: () => (compared.value = marked.value) };
    if (event.key in walks) {
      event.preventDefault();
      event.stopPropagation();
      if (walks[event.key]) at.value = walks[event.key]?.node.node ?? at.value;
    } else if (acts[event.key]) {
      event.preventDefault();
      event.stopPropagation();
      acts[event.key]?.();
    }
  };
  const width = Math.max(...places.map((one) => one.x), 0) + CARD_PX.width + 48;
  const height = Math.max(...places.map((one) => one.y), 0) + ROW_PX + 32;
  return (
    <aside class="panel forest" aria-label="Branches">
      <header class="panel-head">
        <div>
          <h2>Branches</h2>
          {tree.value && <p class="dim">{plural(tree.value.nodes.filter((one) => one.parent !== null).length, "message")} · {plural(leaves(tree.value).length, "end")} · nothing here is ever overwritten</p>}
        </div>
        <div class="buttons">
          {marked.value.length > 1 && <button type="button" class="chip" onClick={() => (compared.value = marked.value)}>Compare the {marked.value.length === 2 ? "two" : marked.value.length}</button>}
          <button type="button" class="icon" aria-label="Close branches" onClick={() => (panel.value = "")}><CloseIcon /></button>
        </div>
      </header>
      <div class="forest-field" ref={field} onKeyDown={onKey} tabIndex={-1}>
        <div class="forest-plane" role="tree" aria-label="Messages" style={{ width: `${width}px`, height: `${height}px` }}>
          <svg width={width} height={height} aria-hidden="true">
            {places.map((one) => one.parent && <path key={one.node.node} class={one.isOnPath ? "on" : ""} d={curve(one.parent, one)} />)}
          </svg>
          {places.map((one) => (
            <Card key={one.node.node} place={one} isAt={one === here} isHead={one.node.node === tree.value?.head} isMarked={marked.value.includes(one.node.node)} onPick={() => (at.value = one.node.node)} onGo={() => void go(one.node.node)} onUnfold={() => (unfolded.value = new Set([...unfolded.value, one.node.node]))} />
          ))}
        </div>
      </div>
      {here && (
        <footer class="forest-foot">
          {here.node.media[0]?.kind === "image" && <img src={mediaUrl(here.node.media[0].digest, "thumb")} alt="" />}
          <p class="forest-words"><strong>{whoOf(here.node)}</strong> <span>{here.node.label}</span></p>
          <div class="buttons">
            <button type="button" class="primary" disabled={here.node.node === tree.value?.head} onClick={() => void go(here.node.node)}><RightIcon /> Go here</button>
            <button type="button" onClick={() => void branch(here.node.node)}><BranchIcon /> Branch</button>
            <button type="button" aria-pressed={marked.value.includes(here.node.node)} onClick={() => mark(here.node.node)}>Mark</button>
            <button type="button" onClick={() => void fork(here.node.node)}><ForkIcon /> New session</button>
            {names.value ? <Name session={sessionId.value} node={here.node.node} name={here.node.bookmark ?? ""} onDone={() => ((names.value = false), void load())} /> : <button type="button" onClick={() => (names.value = true)}><StarIcon /> Name</button>}
          </div>
        </footer>
      )}
    </aside>
  );
}

function whoOf(node: TreeNode): string {
  if (node.role === "user") return "you";
  return node.parent === null ? "start" : shortModel(node.model) || node.role;
}

function nearest(places: Placed[], here: Placed, direction: number): Placed | undefined {
  const column = places.filter((one) => one.x === here.x && Math.sign(one.y - here.y) === direction);
  return column.sort((a, b) => Math.abs(a.y - here.y) - Math.abs(b.y - here.y))[0];
}

function curve(from: Placed, to: Placed): string {
  const [x1, y1, x2, y2] = [from.x + CARD_PX.width + 16, from.y + ROW_PX / 2 + 8, to.x + 16, to.y + ROW_PX / 2 + 8];
  const bend = (COLUMN_PX - CARD_PX.width) / 2 + 8;
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

interface CardProps {
  place: Placed;
  isAt: boolean;
  isHead: boolean;
  isMarked: boolean;
  onPick: () => void;
  onGo: () => void;
  onUnfold: () => void;
}

function Card({ place, isAt, isHead, isMarked, onPick, onGo, onUnfold }: CardProps) {
  const { node } = place;
  const who = whoOf(node);
  const classes = ["node", node.role, place.isOnPath && "on", isHead && "head", isMarked && "marked"].filter(Boolean).join(" ");
  return (
    <>
      {place.folded > 0 && (
        <button type="button" class="folded" tabIndex={-1} style={{ left: `${place.x - 20}px`, top: `${place.y + 26}px` }} aria-label={`Unfold ${place.folded} messages`} onClick={onUnfold}>+{place.folded}</button>
      )}
      <button type="button" role="treeitem" aria-selected={isAt} aria-level={node.depth + 1} data-at={isAt} tabIndex={isAt ? 0 : -1} class={classes} style={{ left: `${place.x + 16}px`, top: `${place.y + 16}px` }} onClick={onPick} onDblClick={onGo}>
        <span class="node-who">{who}{isHead && <em>you are here</em>}{node.bookmark && <em>★ {node.bookmark}</em>}{isMarked && <em>marked</em>}</span>
        <span class="clip">{node.media.length > 0 && <span aria-label={plural(node.media.length, "medium", "media")}>{node.media[0]?.kind === "image" ? "▣" : "▤"} </span>}{node.label}</span>
      </button>
    </>
  );
}

function Name({ session, node, name, onDone }: { session: string; node: string; name: string; onDone: () => void }) {
  const keep = async (event: Event): Promise<void> => {
    event.preventDefault();
    const bookmark = new FormData(event.currentTarget as HTMLFormElement).get("name") as string;
    await ask(`/sessions/${session}/nodes/${encodeURIComponent(node)}`, { method: "PATCH", body: { bookmark } }).catch(report);
    onDone();
  };
  return (
    <form class="name" onSubmit={(event) => void keep(event)}>
      <input name="name" aria-label="Name of this place" placeholder="Name" defaultValue={name} ref={(input) => input?.focus()} onKeyDown={(event) => event.key === "Escape" && (event.preventDefault(), event.stopPropagation(), onDone())} />
      <button type="submit">Keep</button>
    </form>
  );
}
