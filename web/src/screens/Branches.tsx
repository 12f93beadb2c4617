// All branches of the session: move with the arrow keys, switch, branch, bookmark, compare. Nothing here deletes anything.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { request, mediaUrl } from "../api/http";
import type { Tree, TreeNode } from "../api/types";
import { useFocusReturn } from "../parts/focus";
import { BranchIcon, CloseIcon, ForkIcon, StarIcon } from "../parts/icons";
import { RightIcon } from "../parts/rare_icons";
import { announce, compared, connection, panel, sessionId, view } from "../state/app";
import { leaves } from "../state/branches";
import { focusComposer } from "../state/composer";
import { COLUMN_PX, placeNodes, type Placed, ROW_PX } from "../state/layout";
import { report } from "../state/sessions";
import { forkSession, moveHead } from "../state/session_actions";
import { plural, shortModel } from "../state/format";

const MAX_SELECTED = 4;
const MIN_ZOOM = 0.02;
/** From this many nodes on, a map of the whole tree helps. */
const OVERVIEW_FROM = 12;
const CARD_PX = { width: 196, height: 48 };

export function Branches() {
  const tree = useSignal<Tree | null>(null);
  const at = useSignal("");
  const selected = useSignal<string[]>([]);
  const names = useSignal(false);
  const unfolded = useSignal<ReadonlySet<string>>(new Set());
  const field = useRef<HTMLDivElement>(null);
  const zoom = useSignal(1);
  const frame = useSignal({ x: 0, y: 0, width: 0, height: 0 });

  const load = (): Promise<void> =>
    request<Tree>(`/sessions/${sessionId.value}/tree`).then((found) => {
      tree.value = found;
      at.value ||= found.head ?? found.nodes[0]?.node ?? "";
    }, report);
  useEffect(() => void load(), [sessionId.value, view.value?.head, view.value?.live === null, connection.value]);
  useFocusReturn(field);
  const places = tree.value ? placeNodes(tree.value, unfolded.value) : [];
  const here = places.find((one) => one.node.node === at.value) ?? places.at(-1);
  useEffect(() => {
    const element = field.current?.querySelector<HTMLElement>(`[data-at="true"]`);
    element?.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (field.current?.contains(document.activeElement) || document.activeElement === document.body) element?.focus();
  }, [at.value, places.length]);

  const go = async (node: string): Promise<void> => {
    if (await moveHead(node)) announce("Switched to this message");
  };
  const branch = async (node: string): Promise<void> => {
    if (!(await moveHead(node))) return;
    panel.value = "";
    focusComposer();
  };
  const toggleSelected = (node: string): void => {
    selected.value = selected.value.includes(node) ? selected.value.filter((one) => one !== node) : [...selected.value.slice(1 - MAX_SELECTED), node];
    announce(`${plural(selected.value.length, "message")} selected`);
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
    const acts: Record<string, () => unknown> = { "+": () => setZoom(zoom.value * 1.25), "=": () => setZoom(zoom.value * 1.25), "-": () => setZoom(zoom.value / 1.25), "0": fit, Enter: () => go(here.node.node), n: () => branch(here.node.node), v: () => toggleSelected(here.node.node), "*": () => (names.value = true), c: () => (compared.value = selected.value) };
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
  const width = places.reduce((most, one) => Math.max(most, one.x), 0) + CARD_PX.width + 48;
  const height = places.reduce((most, one) => Math.max(most, one.y), 0) + ROW_PX + 32;
  const measure = (): void => {
    const element = field.current;
    if (element) frame.value = { x: element.scrollLeft, y: element.scrollTop, width: element.clientWidth, height: element.clientHeight };
  };
  const setZoom = (value: number): void => {
    zoom.value = Math.min(Math.max(value, MIN_ZOOM), 1.5);
  };
  const fit = (): void => {
    const element = field.current;
    if (element) setZoom(Math.min(element.clientWidth / width, element.clientHeight / height, 1));
  };
  const centre = (x: number, y: number): void => field.current?.scrollTo({ left: x * zoom.value - frame.value.width / 2, top: y * zoom.value - frame.value.height / 2 });
  useEffect(measure, [zoom.value, places.length]);
  useEffect(() => {
    const element = field.current;
    const onWheel = (event: WheelEvent): void => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      setZoom(zoom.value * Math.exp(-event.deltaY / 300));
    };
    // A passive listener cannot keep the browser from zooming the page.
    element?.addEventListener("wheel", onWheel, { passive: false });
    return () => element?.removeEventListener("wheel", onWheel);
  }, []);
  const isLarge = width * zoom.value > frame.value.width || height * zoom.value > frame.value.height;
  return (
    <aside class="panel branches" aria-label="Branches">
      <header class="panel-head">
        <div>
          <h2>Branches</h2>
          {tree.value && <p class="dim">{plural(tree.value.nodes.filter((one) => one.parent !== null).length, "message")} · {plural(leaves(tree.value).length, "branch", "branches")} · earlier versions are always kept</p>}
        </div>
        <div class="buttons">
          <span class="zoom" role="group" aria-label="Zoom">
            <button type="button" class="icon" aria-label="Zoom out" title="Zoom out (−)" disabled={zoom.value <= MIN_ZOOM} onClick={() => setZoom(zoom.value / 1.25)}>−</button>
            <button type="button" class="link" title="Fit to the panel (0)" onClick={fit}>Fit</button>
            <button type="button" class="icon" aria-label="Zoom in" title="Zoom in (+)" disabled={zoom.value >= 1.5} onClick={() => setZoom(zoom.value * 1.25)}>+</button>
            <span class="dim" aria-live="polite">{Math.round(zoom.value * 100)} %</span>
          </span>
          {selected.value.length > 1 && <button type="button" class="chip" onClick={() => (compared.value = selected.value)}>Compare {selected.value.length}</button>}
          <button type="button" class="icon" aria-label="Close branches" onClick={() => (panel.value = "")}><CloseIcon /></button>
        </div>
      </header>
      <div class="branches-field" ref={field} onKeyDown={onKey} onScroll={measure} tabIndex={-1}>
        <div class="branches-size" style={{ width: `${width * zoom.value}px`, height: `${height * zoom.value}px` }}>
        <div class="branches-plane" role="tree" aria-label="Messages" style={{ width: `${width}px`, height: `${height}px`, transform: `scale(${zoom.value})` }}>
          <svg width={width} height={height} aria-hidden="true">
            {places.map((one) => one.parent && <path key={one.node.node} class={one.isOnPath ? "on" : ""} d={curve(one.parent, one)} />)}
          </svg>
          {places.map((one) => (
            <Card key={one.node.node} place={one} isAt={one === here} isHead={one.node.node === tree.value?.head} isSelected={selected.value.includes(one.node.node)} onPick={() => (at.value = one.node.node)} onGo={() => void go(one.node.node)} onUnfold={() => (unfolded.value = new Set([...unfolded.value, one.node.node]))} />
          ))}
        </div>
        </div>
      </div>
      {isLarge && places.length > OVERVIEW_FROM && <Overview places={places} width={width} height={height} zoom={zoom.value} frame={frame.value} onGo={centre} />}
      {here && (
        <footer class="branches-foot">
          {here.node.media[0]?.kind === "image" && <img src={mediaUrl(here.node.media[0].digest, "thumb")} alt="" />}
          <p class="branches-words"><strong>{whoOf(here.node)}</strong> <span>{here.node.label}</span></p>
          <div class="buttons">
            <button type="button" class="primary" disabled={here.node.node === tree.value?.head} onClick={() => void go(here.node.node)}><RightIcon /> Switch to this</button>
            <button type="button" onClick={() => void branch(here.node.node)}><BranchIcon /> Branch from here</button>
            <button type="button" aria-pressed={selected.value.includes(here.node.node)} onClick={() => toggleSelected(here.node.node)}>Select</button>
            <button type="button" onClick={() => void forkSession(here.node.node)}><ForkIcon /> New session</button>
            {names.value ? <BookmarkForm session={sessionId.value} node={here.node.node} name={here.node.bookmark ?? ""} onDone={() => ((names.value = false), void load())} /> : <button type="button" onClick={() => (names.value = true)}><StarIcon /> Bookmark</button>}
          </div>
        </footer>
      )}
    </aside>
  );
}

interface OverviewProps {
  places: Placed[];
  width: number;
  height: number;
  zoom: number;
  frame: { x: number; y: number; width: number; height: number };
  onGo: (x: number, y: number) => void;
}

/** A small map of the whole tree with the visible part; a click goes there. For pointers: the tree itself has the keyboard. */
function Overview({ places, width, height, zoom, frame, onGo }: OverviewProps) {
  const go = (event: MouseEvent): void => {
    const box = (event.currentTarget as SVGElement).getBoundingClientRect();
    onGo(((event.clientX - box.x) / box.width) * width, ((event.clientY - box.y) / box.height) * height);
  };
  return (
    <div class="overview" aria-hidden="true">
      <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" onClick={go}>
        {places.map((one) => <rect key={one.node.node} class={one.isOnPath ? "on" : ""} x={one.x + 16} y={one.y + 16} width={CARD_PX.width} height={CARD_PX.height} />)}
        <rect class="frame" x={frame.x / zoom} y={frame.y / zoom} width={Math.min(width, frame.width / zoom)} height={Math.min(height, frame.height / zoom)} />
      </svg>
    </div>
  );
}

function whoOf(node: TreeNode): string {
  if (node.role === "user") return "You";
  return node.parent === null ? "Start" : shortModel(node.model) || node.role;
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
  isSelected: boolean;
  onPick: () => void;
  onGo: () => void;
  onUnfold: () => void;
}

function Card({ place, isAt, isHead, isSelected, onPick, onGo, onUnfold }: CardProps) {
  const { node } = place;
  const who = whoOf(node);
  const classes = ["node", node.role, place.isOnPath && "on", isHead && "head", isSelected && "selected"].filter(Boolean).join(" ");
  return (
    <>
      {place.folded > 0 && (
        <button type="button" class="folded" tabIndex={-1} style={{ left: `${place.x - 20}px`, top: `${place.y + 26}px` }} aria-label={`Unfold ${place.folded} messages`} onClick={onUnfold}>+{place.folded}</button>
      )}
      <button type="button" role="treeitem" aria-selected={isAt} aria-level={node.depth + 1} data-at={isAt} tabIndex={isAt ? 0 : -1} class={classes} style={{ left: `${place.x + 16}px`, top: `${place.y + 16}px` }} onClick={onPick} onDblClick={onGo}>
        <span class="node-who">{who}{isHead && <em>current</em>}{node.bookmark && <em>★ {node.bookmark}</em>}{isSelected && <em>selected</em>}</span>
        <span class="clip">{node.media.length > 0 && <span aria-label={plural(node.media.length, "attachment")}>{node.media[0]?.kind === "image" ? "▣" : "▤"} </span>}{node.label}</span>
      </button>
    </>
  );
}

function BookmarkForm({ session, node, name, onDone }: { session: string; node: string; name: string; onDone: () => void }) {
  const save = async (event: Event): Promise<void> => {
    event.preventDefault();
    const bookmark = new FormData(event.currentTarget as HTMLFormElement).get("name") as string;
    await request(`/sessions/${session}/nodes/${encodeURIComponent(node)}`, { method: "PATCH", body: { bookmark } }).catch(report);
    onDone();
  };
  return (
    <form class="name" onSubmit={(event) => void save(event)}>
      <input name="name" aria-label="Bookmark name" placeholder="Bookmark name" defaultValue={name} ref={(input) => input?.focus()} onKeyDown={(event) => event.key === "Escape" && (event.preventDefault(), event.stopPropagation(), onDone())} />
      <button type="submit">Save</button>
    </form>
  );
}
