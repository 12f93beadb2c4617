// The start screen: three samples, one click each.
import { useEffect, useRef } from "preact/hooks";
import { randomKey, mediaUrl, request } from "../api/http";
import { isMedia } from "../api/blocks";
import { dialog, model, models, samples, sessionsLoaded } from "../state/app";
import { attach } from "../state/composer";
import { send, useModel } from "../state/actions";
import { report } from "../state/sessions";
import { plural, shortModel } from "../state/format";
import type { SampleView } from "../api/types";
import { DownIcon, KeyIcon } from "../parts/icons";
import { Composer } from "./Composer";

export function Start() {
  const picker = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (!samples.value.length && sessionsLoaded.value) request<{ samples: SampleView[] }>("/samples").then((found) => (samples.value = found.samples), report);
  }, [sessionsLoaded.value]);
  const isSpark = model.value.startsWith("loom/");
  const local = models.value.find((one) => one.ready && !one.reference.startsWith("loom/") && one.capabilities.vision);
  return (
    <div class="start">
      <div class="start-scroll"><div class="start-inner">
        <h1>Drop an image.<br />See what the model sees.</h1>
        <p class="lead">Images, PDFs, text and code. No model gets a file before you send it.</p>
        <ul class="samples" aria-label="Samples">
          {!samples.value.length && [0, 1, 2].map((at) => <li key={at} aria-hidden="true"><SamplePlaceholder /></li>)}
          {samples.value.map((sample) => (
            <li key={sample.name}>
              <SampleCard sample={sample} />
            </li>
          ))}
          <li>
            <button type="button" class="sample pick" onClick={() => picker.current?.click()}>
              <span class="sample-frame"><DownIcon /></span>
              <span class="sample-title">Your own file</span>
              <span class="dim">Drop, paste or choose</span>
            </button>
            <input ref={picker} type="file" multiple hidden onChange={(event) => attach([...(event.currentTarget.files ?? [])])} />
          </li>
        </ul>
        <p class="start-note">
          <span>
            Current model: <strong>{model.value || "…"}</strong>
            {isSpark && ". Built-in demo model: no API key needed, not a language model"}.
          </span>
          {isSpark && (
            <span class="buttons">
              <button type="button" class="chip" onClick={() => (dialog.value = "settings")}><KeyIcon /> Add an API key</button>
              {local && <button type="button" class="chip" onClick={() => void useModel(local.reference)}>Use {shortModel(local.reference)}</button>}
            </span>
          )}
        </p>
      </div></div>
      <Composer />
    </div>
  );
}

/** The size of a sample before it is known: nothing moves when the samples arrive. */
function SamplePlaceholder() {
  return (
    <div class="sample placeholder">
      <span class="sample-frame" />
      <span class="sample-title">&nbsp;</span>
      <span class="dim">&nbsp;</span>
    </div>
  );
}

function SampleCard({ sample }: { sample: SampleView }) {
  const { media } = sample;
  const run = (): void => {
    if (isMedia(media.block)) void send({ text: sample.prompt, blocks: [media.block], files: [], key: randomKey() });
  };
  return (
    <button type="button" class="sample" onClick={run}>
      <span class="sample-frame">
        <img class={(media.width ?? 0) > (media.height ?? 0) ? "whole" : undefined} src={mediaUrl(media.digest, media.kind === "document" ? "thumb:1" : "low")} alt="" decoding="async" />
      </span>
      <span class="sample-title">{sample.title}</span>
      <span class="dim clip">{media.pages ? `${media.name} · ${plural(media.pages, "page")}` : media.name}</span>
    </button>
  );
}
