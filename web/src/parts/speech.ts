// Read aloud with the browser's voices. Loaded when it is first used.
import { announce, spokenText } from "../state/app";
import { stripMarkdown } from "../state/format";

/** Words as they are read: no code blocks, no link targets, no markers. */
export function readableText(markdown: string): string {
  const words = markdown.replace(/```[\s\S]*?(?:```|$)/g, " (code) ").replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/^\s*[-+|]+\s?/gm, "");
  return stripMarkdown(words).trim();
}

export function toggleSpeech(markdown: string): void {
  const isSame = spokenText.value === markdown;
  speechSynthesis.cancel();
  spokenText.value = "";
  if (isSame) return;
  const utterance = new SpeechSynthesisUtterance(readableText(markdown));
  utterance.onend = utterance.onerror = () => {
    if (spokenText.value === markdown) spokenText.value = "";
  };
  spokenText.value = markdown;
  announce("Reading aloud");
  speechSynthesis.speak(utterance);
}
