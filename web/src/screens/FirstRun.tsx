// Before there is anything: three samples, one click each, no form.
import { useRef } from "preact/hooks";
import { freshKey, mediaUrl } from "../api/http";
import { isMedia } from "../api/blocks";
import { dialog, model, models, samples } from "../state/app";
import { attach } from "../state/composer";
import { send, useModel } from "../state/turn";
import { plural, shortModel } from "../state/words";
import type { SampleView } from "../api/shapes";
import { DownIcon, KeyIcon } from "../parts/icons";
import { Composer } from "./Composer";

export function FirstRun() {
  const picker = useRef<HTMLInputElement>(null);
  const isSpark = model.value.startsWith("loom/");
  const local = models.value.find((one) => one.ready && !one.reference.startsWith("loom/") && one.capabilities.vision);
  return (
    <div class="start">
      <div class="start-scroll"><div class="start-inner">
        <h1>Drop a picture.<br />See what the model sees.</h1>
        <p class="lead">A picture, a PDF, a page of notes. It stays on this computer{isSpark ? "" : " until a model is asked"}.</p>
        <ul class="samples" aria-label="Samples">
          {samples.value.map((sample) => (
            <li key={sample.name}>
              <SampleCard sample={sample} />
            </li>
          ))}
          <li>
            <button type="button" class="sample pick" onClick={() => picker.current?.click()}>
              <span class="sample-frame"><DownIcon /></span>
              <span class="sample-title">Your own</span>
              <span class="dim">drop, paste or choose</span>
            </button>
            <input ref={picker} type="file" multiple hidden onChange={(event) => attach([...(event.currentTarget.files ?? [])])} />
          </li>
        </ul>
        <p class="start-note">
          <span>
            You are talking to <strong>{model.value || "…"}</strong>
            {isSpark && ", a built-in model that looks at pixels and reads pages but does not reason"}.
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

function SampleCard({ sample }: { sample: SampleView }) {
  const { media } = sample;
  const run = (): void => {
    if (isMedia(media.block)) void send({ text: sample.prompt, blocks: [media.block], files: [], key: freshKey() });
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
