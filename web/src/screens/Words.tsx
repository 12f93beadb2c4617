// The words that a model reads which cannot take the thing itself. A person's stand before all others, in this session.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask, mediaUrl, Refused } from "../api/http";
import type { DescriptionView, MediaText, Problem } from "../api/shapes";
import { Dialog } from "../parts/Dialog";
import { EyeIcon } from "../parts/icons";
import { Menu } from "../parts/Menu";
import { announce, models } from "../state/app";
import { setAlt, worded } from "../state/plan";
import { shortModel } from "../state/words";

const MOST_CHARACTERS = 20_000;

export function Words() {
  const { digest, kind, label, alt } = worded.value ?? { digest: "", kind: "", label: "", alt: "" };
  const text = useSignal(alt);
  const whose = useSignal(alt ? "Your words" : "");
  const waits = useSignal(alt ? "" : "Reading…");
  const problem = useSignal<Problem | null>(null);
  const close = (): void => {
    worded.value = null;
  };
  const attempt = async (work: () => Promise<void>, word = ""): Promise<void> => {
    waits.value = word;
    problem.value = null;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      problem.value = { code: error.code, message: error.message, hint: error.hint };
    }
    waits.value = "";
  };
  const read = (): Promise<void> =>
    attempt(async () => {
      const found = await ask<MediaText>(`/media/${encodeURIComponent(digest)}/text`);
      text.value = found.text.slice(0, MOST_CHARACTERS);
      whose.value = found.text ? (kind === "image" ? "Read in the picture" : "Its own text") : "";
    }, "Reading…");
  const describe = (model: string): Promise<void> =>
    attempt(async () => {
      const found = await ask<DescriptionView>(`/media/${encodeURIComponent(digest)}/description`, { body: { model } });
      text.value = found.text;
      whose.value = `Description by ${found.by}`;
    }, `${shortModel(model)} is looking…`);
  const keep = (words: string): Promise<void> =>
    attempt(async () => {
      await setAlt(digest, words);
      announce(words ? "Your words are kept" : "Your words are taken back");
      close();
    }, "Keeping…");
  useEffect(() => {
    if (!alt) void read();
  }, []);
  const eyes = models.value.filter((one) => one.ready && one.capabilities.vision);
  return (
    <Dialog title="What the blind will read" kind="small words-dialog" onClose={close}>
      <div class="words-face">
        {kind === "image" && <img src={mediaUrl(digest, "thumb")} alt="" />}
        <p>A model that cannot take <strong>{label}</strong> gets these words instead. They count in this session, before anything that was read or described.</p>
      </div>
      <form class="words-form" onSubmit={(event) => (event.preventDefault(), void keep(text.value))}>
        <textarea aria-label="Words" rows={7} maxLength={MOST_CHARACTERS} value={text.value} placeholder={waits.value || "Say what it shows"} onInput={(event) => ((text.value = event.currentTarget.value), (whose.value = "Your words"))} />
        <p class="dim" role="status">{waits.value || whose.value || "Nothing could be read in it"}</p>
        {problem.value && <p class="grave">{problem.value.message} {problem.value.hint}</p>}
        <div class="buttons end">
          {kind === "image" && eyes.length > 0 && (
            <Menu label="Describe it with a model" class="chip" items={eyes.slice(0, 14).map((one) => ({ label: shortModel(one.reference), note: one.provider === "loom" ? "on this computer" : `the picture goes to ${one.provider}`, act: () => void describe(one.reference) }))}>
              <EyeIcon /> Describe with…
            </Menu>
          )}
          {alt && <button type="button" disabled={!!waits.value} onClick={() => void keep("")}>Take my words back</button>}
          <button type="submit" class="primary" disabled={!text.value.trim() || !!waits.value}>Keep</button>
        </div>
      </form>
    </Dialog>
  );
}
