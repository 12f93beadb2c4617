// The text that text-only models get instead of a file. The user's text wins over extracted text and descriptions.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { request, mediaUrl, ApiError } from "../api/http";
import type { DescriptionView, MediaText, Problem } from "../api/types";
import { Dialog } from "../parts/Dialog";
import { EyeIcon } from "../parts/rare_icons";
import { Menu } from "../parts/Menu";
import { announce, models } from "../state/app";
import { editedAlt } from "../state/plan";
import { setAlt } from "../state/plan_changes";
import { shortModel } from "../state/format";

const MAX_CHARACTERS = 20_000;

export function TextAlternative() {
  const { digest, kind, label, alt } = editedAlt.value ?? { digest: "", kind: "", label: "", alt: "" };
  const text = useSignal(alt);
  const origin = useSignal(alt ? "Your description" : "");
  const busy = useSignal(alt ? "" : "Reading…");
  const problem = useSignal<Problem | null>(null);
  const close = (): void => {
    editedAlt.value = null;
  };
  const attempt = async (work: () => Promise<void>, word = ""): Promise<void> => {
    busy.value = word;
    problem.value = null;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      problem.value = { code: error.code, message: error.message, hint: error.hint };
    }
    busy.value = "";
  };
  const read = (): Promise<void> =>
    attempt(async () => {
      const found = await request<MediaText>(`/media/${encodeURIComponent(digest)}/text`);
      text.value = found.text.slice(0, MAX_CHARACTERS);
      origin.value = found.text ? (kind === "image" ? "Text found in the image" : "Text of the document") : "";
    }, "Reading…");
  const describe = (model: string): Promise<void> =>
    attempt(async () => {
      const found = await request<DescriptionView>(`/media/${encodeURIComponent(digest)}/description`, { body: { model } });
      text.value = found.text;
      origin.value = `Description by ${found.by}`;
    }, `${shortModel(model)} is describing the image…`);
  const save = (words: string): Promise<void> =>
    attempt(async () => {
      await setAlt(digest, words);
      announce(words ? "Description saved" : "Description removed");
      close();
    }, "Saving…");
  useEffect(() => {
    if (!alt) void read();
  }, []);
  const withVision = models.value.filter((one) => one.ready && one.capabilities.vision);
  return (
    <Dialog title="Text alternative" kind="small alternative-dialog" onClose={close}>
      <div class="alternative-head">
        {kind === "image" && <img src={mediaUrl(digest, "thumb")} alt="" />}
        <p>Models that cannot read <strong>{label}</strong> get this text instead, in this session.</p>
      </div>
      <form class="alternative-form" onSubmit={(event) => (event.preventDefault(), void save(text.value))}>
        <textarea aria-label="Text alternative" rows={7} maxLength={MAX_CHARACTERS} value={text.value} placeholder={busy.value || "Describe what it shows"} onInput={(event) => ((text.value = event.currentTarget.value), (origin.value = "Your description"))} />
        <p class="dim" role="status">{busy.value || origin.value || "No text found"}</p>
        {problem.value && <p class="danger">{problem.value.message} {problem.value.hint}</p>}
        <div class="buttons end">
          {kind === "image" && withVision.length > 0 && (
            <Menu label="Describe with a model" class="chip" items={withVision.slice(0, 14).map((one) => ({ label: shortModel(one.reference), note: one.provider === "loom" ? "on this computer" : `sends the image to ${one.provider}`, act: () => void describe(one.reference) }))}>
              <EyeIcon /> Describe with…
            </Menu>
          )}
          {alt && <button type="button" disabled={!!busy.value} onClick={() => void save("")}>Remove my description</button>}
          <button type="submit" class="primary" disabled={!text.value.trim() || !!busy.value}>Save</button>
        </div>
      </form>
    </Dialog>
  );
}
