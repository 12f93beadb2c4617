// An image at full size. Wheel and pinch zoom, dragging pans, arrow keys step, `0` switches between the original and the
// version that the model gets.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { mediaUrl } from "../api/http";
import { CloseIcon, CopyIcon } from "../parts/icons";
import { DownloadIcon, EyeIcon, LeftIcon, RightIcon } from "../parts/rare_icons";
import { Badge } from "../parts/Badge";
import { Dialog } from "../parts/Dialog";
import { announce, model, sessionId } from "../state/app";
import { cellFor, lightbox, type LightboxImage } from "../state/images";
import { plan, editedAlt } from "../state/plan";
import { shortModel, formatBytes } from "../state/format";

export function Lightbox() {
  const { list, at } = lightbox.value ?? { list: [], at: 0 };
  const image = list[at];
  if (!image) return null;
  const close = (): void => {
    lightbox.value = null;
  };
  return (
    <Dialog title={image.name} kind="lightbox" isPlain onClose={close}>
      <Stage key={`${image.digest}.${image.page}`} image={image} at={at} count={list.length} onStep={(by) => (lightbox.value = { list, at: (at + by + list.length) % list.length })} onClose={close} />
    </Dialog>
  );
}

interface Props {
  image: LightboxImage;
  at: number;
  count: number;
  onStep: (by: number) => void;
  onClose: () => void;
}

function Stage({ image, at, count, onStep, onClose }: Props) {
  const sent = useSignal(false);
  const shift = useSignal({ scale: 1, x: 0, y: 0 });
  const shown = useSignal<{ width: number; height: number } | null>(null);
  const stage = useRef<HTMLDivElement>(null);
  const fingers = useRef(new Map<number, { x: number; y: number }>());
  const cell = cellFor(image.block);
  const row = plan.value?.rows.find((one) => one.digest === image.digest);
  const words = row?.alt || image.alt;
  const isText = cell?.rendition === "text" || cell?.rendition === "omitted";
  const original = image.page ? `page:${image.page}` : "full";
  const version = sent.value ? `sent:${model.value}` : original;

  const zoom = (factor: number, x = 0, y = 0): void => {
    const { scale, x: left, y: top } = shift.value;
    const next = Math.min(Math.max(scale * factor, 1), 12);
    const ratio = next / scale;
    shift.value = next === 1 ? { scale: 1, x: 0, y: 0 } : { scale: next, x: x - (x - left) * ratio, y: y - (y - top) * ratio };
  };
  const flip = (): void => {
    if (image.page) return;
    sent.value = !sent.value;
    announce(sent.value ? `Showing the version for ${model.value}` : "Showing the original");
  };
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const actions: Record<string, () => unknown> = {
        ArrowLeft: () => onStep(-1), ArrowRight: () => onStep(1), "0": flip, "+": () => zoom(1.4), "=": () => zoom(1.4), "-": () => zoom(1 / 1.4), c: () => copy(version, image.digest),
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
        <span class="clip">{image.name}</span>
        {count > 1 && <span class="dim">{at + 1} of {count}</span>}
        <span class="spring" />
        {!image.page && (
          <button type="button" class="chip" aria-pressed={sent.value} title="Switch version (0)" onClick={flip}>
            <EyeIcon /> {sent.value ? `As sent to ${shortModel(model.value)}` : "Original"}
          </button>
        )}
        <button type="button" class="icon" aria-label="Copy image" title="Copy (c)" onClick={() => void copy(version, image.digest)}><CopyIcon /></button>
        <a class="icon" aria-label="Download" href={mediaUrl(image.digest, original)} download={image.name}><DownloadIcon /></a>
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
            <p>{shortModel(model.value)} cannot use this image. It gets this text instead:</p>
            <blockquote>{words || `[image: ${image.name}]`}</blockquote>
            {cell?.detail && <p class="dim">{cell.detail}</p>}
          </div>
        ) : (
          <img
            src={mediaUrl(image.digest, version)}
            alt={image.alt || image.name}
            draggable={false}
            style={{ transform: `translate(${x}px, ${y}px) scale(${scale})` }}
            onLoad={(event) => (shown.value = { width: event.currentTarget.naturalWidth, height: event.currentTarget.naturalHeight })}
          />
        )}
      </div>
      {count > 1 && (
        <>
          <button type="button" class="icon step before" aria-label="Previous image" onClick={() => onStep(-1)}><LeftIcon /></button>
          <button type="button" class="icon step after" aria-label="Next image" onClick={() => onStep(1)}><RightIcon /></button>
        </>
      )}
      <footer>
        {shown.value && !(sent.value && isText) && <span>{shown.value.width}×{shown.value.height}</span>}
        {sent.value && cell ? <Badge rendition={cell.rendition} note={`${cell.tokens} tok`} /> : image.media.size_bytes > 0 && <span>{formatBytes(image.media.size_bytes)}</span>}
        <span class="clip mono">{image.digest.slice(0, 19)}…</span>
        {words && <span class="clip">{words}</span>}
        {!image.page && sessionId.value && <button type="button" class="link" onClick={() => (onClose(), (editedAlt.value = { digest: image.digest, kind: "image", label: image.name, alt: row?.alt ?? "" }))}>Edit text alternative</button>}
        {scale > 1 && <span>{Math.round(scale * 100)} %</span>}
      </footer>
    </div>
  );
}

/** Copy as PNG, the one image type that every clipboard accepts. */
async function copy(version: string, digest: string): Promise<void> {
  const blob = await (await fetch(mediaUrl(digest, version))).blob();
  const bitmap = await createImageBitmap(blob);
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  canvas.getContext("2d")?.drawImage(bitmap, 0, 0);
  await navigator.clipboard.write([new ClipboardItem({ "image/png": canvas.convertToBlob({ type: "image/png" }) })]);
  announce("Image copied");
}
