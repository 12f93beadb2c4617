// A picture at its full size. Wheel and pinch zoom, dragging pans, arrows walk, `0` flips between the original and what the
// model got.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { mediaUrl } from "../api/http";
import { CloseIcon, CopyIcon, DownloadIcon, EyeIcon, LeftIcon, RightIcon } from "../parts/icons";
import { Badge } from "../parts/Badge";
import { Dialog } from "../parts/Dialog";
import { announce, model, sessionId } from "../state/app";
import { cellFor, opened, type Picture } from "../state/pictures";
import { plan, worded } from "../state/plan";
import { shortModel, size } from "../state/words";

export function Lightbox() {
  const { list, at } = opened.value ?? { list: [], at: 0 };
  const picture = list[at];
  if (!picture) return null;
  const close = (): void => {
    opened.value = null;
  };
  return (
    <Dialog title={picture.name} kind="lightbox" isPlain onClose={close}>
      <Stage key={`${picture.digest}.${picture.page}`} picture={picture} at={at} count={list.length} onStep={(by) => (opened.value = { list, at: (at + by + list.length) % list.length })} onClose={close} />
    </Dialog>
  );
}

interface Props {
  picture: Picture;
  at: number;
  count: number;
  onStep: (by: number) => void;
  onClose: () => void;
}

function Stage({ picture, at, count, onStep, onClose }: Props) {
  const sent = useSignal(false);
  const shift = useSignal({ scale: 1, x: 0, y: 0 });
  const shown = useSignal<{ width: number; height: number } | null>(null);
  const stage = useRef<HTMLDivElement>(null);
  const fingers = useRef(new Map<number, { x: number; y: number }>());
  const cell = cellFor(picture.digest);
  const row = plan.value?.rows.find((one) => one.digest === picture.digest);
  const words = row?.alt || picture.alt;
  const isText = cell?.rendition === "text" || cell?.rendition === "omitted";
  const original = picture.page ? `page:${picture.page}` : "full";
  const version = sent.value ? `sent:${model.value}` : original;

  const zoom = (factor: number, x = 0, y = 0): void => {
    const { scale, x: left, y: top } = shift.value;
    const next = Math.min(Math.max(scale * factor, 1), 12);
    const ratio = next / scale;
    shift.value = next === 1 ? { scale: 1, x: 0, y: 0 } : { scale: next, x: x - (x - left) * ratio, y: y - (y - top) * ratio };
  };
  const flip = (): void => {
    if (picture.page) return;
    sent.value = !sent.value;
    announce(sent.value ? `What ${model.value} gets` : "The original");
  };
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const actions: Record<string, () => unknown> = {
        ArrowLeft: () => onStep(-1), ArrowRight: () => onStep(1), "0": flip, "+": () => zoom(1.4), "=": () => zoom(1.4), "-": () => zoom(1 / 1.4), c: () => copy(version, picture.digest),
      };
      const action = event.ctrlKey || event.metaKey ? undefined : actions[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });
  useEffect(() => {
    const element = stage.current;
    const onWheel = (event: WheelEvent): void => {
      event.preventDefault();
      const box = element?.getBoundingClientRect();
      if (box) zoom(Math.exp(-event.deltaY / 400), event.clientX - box.x - box.width / 2, event.clientY - box.y - box.height / 2);
    };
    // Preact listens passively, and a passive listener cannot keep the page from scrolling.
    element?.addEventListener("wheel", onWheel, { passive: false });
    return () => element?.removeEventListener("wheel", onWheel);
  }, []);
  const onMove = (event: PointerEvent): void => {
    const before = fingers.current.get(event.pointerId);
    if (!before) return;
    const others = [...fingers.current].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    const other = others[0];
    if (other) zoom(Math.hypot(event.clientX - other.x, event.clientY - other.y) / Math.max(1, Math.hypot(before.x - other.x, before.y - other.y)));
    else if (shift.value.scale > 1) shift.value = { ...shift.value, x: shift.value.x + event.clientX - before.x, y: shift.value.y + event.clientY - before.y };
    fingers.current.set(event.pointerId, { x: event.clientX, y: event.clientY });
  };
  const { scale, x, y } = shift.value;
  return (
    <div class="lightbox-inner">
      <header>
        <span class="clip">{picture.name}</span>
        {count > 1 && <span class="dim">{at + 1} of {count}</span>}
        <span class="spring" />
        {!picture.page && (
          <button type="button" class="chip" aria-pressed={sent.value} title="Flip (0)" onClick={flip}>
            <EyeIcon /> {sent.value ? `as ${shortModel(model.value)} gets it` : "original"}
          </button>
        )}
        <button type="button" class="icon" aria-label="Copy picture" title="Copy (c)" onClick={() => void copy(version, picture.digest)}><CopyIcon /></button>
        <a class="icon" aria-label="Download" href={mediaUrl(picture.digest, original)} download={picture.name}><DownloadIcon /></a>
        <button type="button" class="icon" aria-label="Close" onClick={onClose}><CloseIcon /></button>
      </header>
      <div
        ref={stage}
        class={`stage${scale > 1 ? " zoomed" : ""}`}
        onPointerDown={(event) => (fingers.current.set(event.pointerId, { x: event.clientX, y: event.clientY }), event.currentTarget.setPointerCapture(event.pointerId))}
        onPointerMove={onMove}
        onPointerUp={(event) => fingers.current.delete(event.pointerId)}
        onPointerCancel={(event) => fingers.current.delete(event.pointerId)}
        onDblClick={() => zoom(scale > 1 ? 1 / scale : 2.5)}
      >
        {sent.value && isText ? (
          <div class="stage-text">
            <p>{shortModel(model.value)} gets no picture here, only words:</p>
            <blockquote>{words || `[image: ${picture.name}]`}</blockquote>
            {cell?.detail && <p class="dim">{cell.detail}</p>}
          </div>
        ) : (
          <img
            src={mediaUrl(picture.digest, version)}
            alt={picture.alt || picture.name}
            draggable={false}
            style={{ transform: `translate(${x}px, ${y}px) scale(${scale})` }}
            onLoad={(event) => (shown.value = { width: event.currentTarget.naturalWidth, height: event.currentTarget.naturalHeight })}
          />
        )}
      </div>
      {count > 1 && (
        <>
          <button type="button" class="icon step before" aria-label="Previous picture" onClick={() => onStep(-1)}><LeftIcon /></button>
          <button type="button" class="icon step after" aria-label="Next picture" onClick={() => onStep(1)}><RightIcon /></button>
        </>
      )}
      <footer>
        {shown.value && !(sent.value && isText) && <span>{shown.value.width}×{shown.value.height}</span>}
        {sent.value && cell ? <Badge rendition={cell.rendition} note={`${cell.tokens} tok`} /> : picture.media.size_bytes > 0 && <span>{size(picture.media.size_bytes)}</span>}
        <span class="clip mono">{picture.digest.slice(0, 19)}…</span>
        {words && <span class="clip">{words}</span>}
        {!picture.page && sessionId.value && <button type="button" class="link" onClick={() => (onClose(), (worded.value = { digest: picture.digest, kind: "image", label: picture.name, alt: row?.alt ?? "" }))}>Edit the words</button>}
        {scale > 1 && <span>{Math.round(scale * 100)} %</span>}
      </footer>
    </div>
  );
}

/** The clipboard takes PNG only. */
async function copy(version: string, digest: string): Promise<void> {
  const blob = await (await fetch(mediaUrl(digest, version))).blob();
  const bitmap = await createImageBitmap(blob);
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  canvas.getContext("2d")?.drawImage(bitmap, 0, 0);
  await navigator.clipboard.write([new ClipboardItem({ "image/png": canvas.convertToBlob({ type: "image/png" }) })]);
  announce("Picture copied");
}
