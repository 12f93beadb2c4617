// Comparing answers: when the last of several models has answered, their answers are shown side by side. Loaded with what chooses them.
import { effect } from "@preact/signals";
import { compared, comparesAnswers, MAX_COMPARED, turns, view } from "./app";
import { waitingMessages } from "./view";

effect(() => {
  const seen = view.value;
  const last = turns.value.at(-1);
  if (!seen || comparesAnswers.value !== seen.session || seen.live || waitingMessages(seen).length || !last?.forked) return;
  const { siblings } = last.forked;
  if (siblings.length < 2) return;
  comparesAnswers.value = "";
  compared.value = siblings.slice(-MAX_COMPARED);
});
