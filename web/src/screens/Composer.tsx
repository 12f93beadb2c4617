// The message box: text, attachments from disk, clipboard and camera, `@` files, `/` commands.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { askedModels, dialog, info, isBusy, isListening, modelInfo, sessionDraft, sessionId } from "../state/app";
import { attach, attachments, attachPaste, blocks, COMMAND, canSend, editing, failed, onFocusWanted, scheduled, submit, text } from "../state/composer";
import { editLast } from "../state/keys";
import { stop } from "../state/actions";
import { deferred } from "../parts/components";
import { CameraIcon, ClipIcon, MicIcon, SendIcon, SlidersIcon, StopIcon } from "../parts/icons";
import { Meter } from "./Meter";
import type { SuggestionHandle } from "./Suggestions";

const Attachments = deferred((found) => found.Attachments);
const ComposerNotes = deferred((found) => found.ComposerNotes);
const Suggestions = deferred((found) => found.Suggestions);
/** A command, or a mention of a file. */
const SUGGESTS = /^\/|(?:^|\s)@/;

const BIG_PASTE_CHARS = 4000;
const hasVoice = "SpeechRecognition" in window || "webkitSpeechRecognition" in window;
const isTouch = matchMedia("(pointer: coarse)").matches;

export function Composer() {
  const box = useRef<HTMLTextAreaElement>(null);
  const files = useRef<HTMLInputElement>(null);
  const camera = useRef<HTMLInputElement>(null);
  const withShift = useRef(false);
  const cursor = useSignal(0);
  const suggestions = useRef<SuggestionHandle | null>(null);

  // Later, because a panel that closes now still covers the box.
  useEffect(() => onFocusWanted(() => setTimeout(() => box.current?.focus())), []);
  useEffect(() => {
    // On a phone the keyboard would cover the conversation.
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
    if (suggestions.current?.onKey(event)) return;
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !isTouch) {
      event.preventDefault();
      const asked = text.value;
      // Without the code of the list, the list says so; the text stays.
      if (!suggestions.current && COMMAND.test(asked)) void import("./deferred").then(({ takeCommand }) => takeCommand(asked, onAccept), () => undefined);
      else void submit();
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
    // Long text becomes an attachment; Ctrl Shift V inserts it as text.
    if (words.length > BIG_PASTE_CHARS && !withShift.current) {
      event.preventDefault();
      attachPaste(words);
    }
  };
  const onAccept = (): void => {
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
  const isTextOnly = modelInfo.value?.capabilities.vision === false && blocks.value.some((block) => block.type === "image");
  const level = info.value ? info.value.options.thinking : sessionDraft.value.options?.thinking;
  return (
    <form class="composer" aria-label="Message" onSubmit={(event) => (event.preventDefault(), void submit())}>
      {SUGGESTS.test(text.value) && <Suggestions cursor={cursor.value} handle={suggestions} onAccept={onAccept} />}
      <div class="composer-box">
        {(scheduled.value || editing.value || askedModels.value.length > 1 || isTextOnly) && <ComposerNotes isTextOnly={isTextOnly} />}
        {attachments.value.length > 0 && <Attachments />}
        <textarea
          id="message"
          ref={box}
          rows={1}
          aria-label="Message"
          placeholder="Message · paste, drop or @ files"
          value={text.value}
          aria-autocomplete="list"
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
          {hasVoice && <button type="button" class={`icon${isListening.value ? " listening" : ""}`} aria-pressed={isListening.value} aria-label="Voice input" title="Voice input (uses the speech service of your browser)" onClick={() => void import("./deferred").then(({ toggleVoice }) => toggleVoice())}><MicIcon /></button>}
          <button type="button" class="icon thinking-level" aria-label={`Session settings${level ? `, thinking: ${level}` : ""}`} title="Session settings: thinking, agent, tools, system prompt (o)" onClick={() => (dialog.value = "session")}><SlidersIcon />{level && <span>{level}</span>}</button>
          <Meter />
          {isBusy.value && <button type="button" class="stop" aria-label="Stop" title="Stop (Esc)" onClick={() => void stop()}><StopIcon /></button>}
          {isBusy.value && canSend.value && !scheduled.value && <button type="button" class="chip" title="The running answer reads it at its next step" onClick={() => void submit(true)}>Steer</button>}
          <button type="submit" class="primary send" disabled={!canSend.value || scheduled.value !== null} title={scheduled.value ? "Waiting for uploads" : failed.value.length ? "Retry or remove the failed attachment first" : "Send (Enter)"}>
            <SendIcon />
            <span>{isBusy.value ? "Queue" : "Send"}</span>
          </button>
        </div>
      </div>
    </form>
  );
}

/** The clipboard names every image image.png: give it a better name. */
function named(file: File, index: number): File {
  if (file.name && file.name !== "image.png") return file;
  const kind = file.type.split("/")[1]?.split("+")[0] ?? "bin";
  return new File([file], `pasted${index ? `-${index + 1}` : ""}.${kind === "jpeg" ? "jpg" : kind}`, { type: file.type });
}
