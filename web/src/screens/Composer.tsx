// Where messages are made: words, files, pictures from the clipboard and the camera, `@` files, `/` commands.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { dialog, isBusy, modelInfo, sessionId } from "../state/app";
import { attach, blocks, canSend, editing, isUploading, onFocusWanted, stopEditing, submit, text } from "../state/composer";
import { editLast } from "../state/keys";
import { stop } from "../state/turn";
import { shortModel } from "../state/words";
import { CameraIcon, ClipIcon, CloseIcon, SendIcon, StopIcon } from "../parts/icons";
import { Attachments } from "./Attachments";
import { Meter } from "./Meter";
import { type Suggested, Suggestions, useSuggestions } from "./Suggestions";

const BIG_PASTE_CHARS = 4000;
const isTouch = matchMedia("(pointer: coarse)").matches;

export function Composer() {
  const box = useRef<HTMLTextAreaElement>(null);
  const files = useRef<HTMLInputElement>(null);
  const camera = useRef<HTMLInputElement>(null);
  const withShift = useRef(false);
  const cursor = useSignal(0);
  const suggested = useSuggestions(cursor.value);

  useEffect(() => onFocusWanted(() => box.current?.focus()), []);
  useEffect(() => {
    // On a phone the keyboard would cover what was just opened.
    if (!isTouch) box.current?.focus();
  }, [sessionId.value]);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, innerHeight * 0.4)}px`;
  }, [text.value]);

  const track = (): void => {
    cursor.value = box.current?.selectionStart ?? 0;
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    withShift.current = event.shiftKey;
    if (suggested.onKey(event, accept)) return;
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !isTouch) {
      event.preventDefault();
      void submit();
    } else if (event.key === "ArrowUp" && !text.value) {
      event.preventDefault();
      editLast();
    }
  };
  const onPaste = (event: ClipboardEvent): void => {
    const pasted = [...(event.clipboardData?.files ?? [])];
    if (pasted.length) {
      event.preventDefault();
      attach(pasted.map(named));
      return;
    }
    const words = event.clipboardData?.getData("text/plain") ?? "";
    // A page of text is a file; Ctrl Shift V keeps it as words.
    if (words.length > BIG_PASTE_CHARS && !withShift.current) {
      event.preventDefault();
      attach([new File([words], "pasted.txt", { type: "text/plain" })]);
    }
  };
  const accept = (item: Suggested): void => {
    suggested.accept(item);
    const element = box.current;
    if (!element) return;
    element.focus();
    requestAnimationFrame(() => {
      element.selectionStart = element.selectionEnd = element.value.length;
      track();
    });
  };
  const pick = (event: Event): void => {
    const input = event.currentTarget as HTMLInputElement;
    attach([...(input.files ?? [])]);
    input.value = "";
  };
  const isBlind = modelInfo.value?.capabilities.vision === false && blocks.value.some((block) => block.type === "image");
  return (
    <form class="composer" aria-label="Message" onSubmit={(event) => (event.preventDefault(), void submit())}>
      <Suggestions suggested={suggested} onAccept={accept} />
      <div class="composer-box">
        {editing.value && (
          <p class="editing">
            Editing: the answer becomes a new branch, the old one stays.
            <button type="button" class="icon" aria-label="Stop editing" onClick={stopEditing}><CloseIcon /></button>
          </p>
        )}
        <Attachments />
        {isBlind && (
          <p class="notice">
            {shortModel(modelInfo.value?.reference ?? "")} cannot see: pictures are sent as text.{" "}
            <button type="button" class="link" onClick={() => (dialog.value = "models")}>Another model</button>
          </p>
        )}
        <textarea
          id="message"
          ref={box}
          rows={1}
          aria-label="Message"
          placeholder="Message · paste, drop or @mention files"
          value={text.value}
          aria-autocomplete="list"
          aria-controls="suggestions"
          aria-activedescendant={suggested.items.length ? `suggestion-${suggested.at}` : undefined}
          onInput={(event) => {
            text.value = event.currentTarget.value;
            track();
          }}
          onKeyDown={onKeyDown}
          onKeyUp={track}
          onClick={track}
          onPaste={onPaste}
        />
        <div class="composer-foot">
          <button type="button" class="icon" aria-label="Attach files" title="Attach files" onClick={() => files.current?.click()}><ClipIcon /></button>
          <input ref={files} type="file" multiple hidden data-pick="files" onChange={pick} />
          <button type="button" class="icon only-touch" aria-label="Take a photo" onClick={() => camera.current?.click()}><CameraIcon /></button>
          <input ref={camera} type="file" accept="image/*" capture="environment" hidden data-pick="camera" onChange={pick} />
          <Meter />
          {isBusy.value && <button type="button" class="stop" aria-label="Stop" title="Stop (Esc)" onClick={() => void stop()}><StopIcon /></button>}
          <button type="submit" class="primary send" disabled={!canSend.value} title={isUploading.value ? "Waits for the uploads" : "Send (Enter)"}>
            <SendIcon />
            <span>{isBusy.value ? "Queue" : "Send"}</span>
          </button>
        </div>
      </div>
    </form>
  );
}

/** Pictures from the clipboard are all called image.png. */
function named(file: File, index: number): File {
  if (file.name && file.name !== "image.png") return file;
  const kind = file.type.split("/")[1]?.split("+")[0] ?? "bin";
  return new File([file], `pasted${index ? `-${index + 1}` : ""}.${kind === "jpeg" ? "jpg" : kind}`, { type: file.type });
}
