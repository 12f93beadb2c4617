// Voice input with the browser's speech recognition. Loaded when it is first used.
import { announce, isListening } from "../state/app";
import { text } from "../state/composer";

interface Recognition {
  continuous: boolean;
  interimResults: boolean;
  lang: string;
  onresult: ((event: { results: ArrayLike<ArrayLike<{ transcript: string }>> }) => void) | null;
  onend: (() => void) | null;
  onerror: ((event: { error: string }) => void) | null;
  start: () => void;
  stop: () => void;
}

const ERRORS: Record<string, string> = {
  "not-allowed": "The browser does not allow the microphone here",
  "audio-capture": "No microphone found",
  network: "The speech service of the browser cannot be reached",
  "no-speech": "No speech heard",
};

let active: Recognition | null = null;

/** Start listening, or stop. Words are added behind the text that is there. */
export function toggleVoice(): void {
  if (active) return active.stop();
  const found = window as unknown as { SpeechRecognition?: new () => Recognition; webkitSpeechRecognition?: new () => Recognition };
  const Maker = found.SpeechRecognition ?? found.webkitSpeechRecognition;
  if (!Maker) return;
  const recognition = new Maker();
  const before = text.value && !/\s$/.test(text.value) ? `${text.value} ` : text.value;
  recognition.continuous = true;
  recognition.interimResults = true;
  recognition.lang = navigator.language;
  recognition.onresult = ({ results }) => {
    text.value = before + Array.from(results, (result) => result[0]?.transcript ?? "").join("").trimStart();
  };
  recognition.onerror = ({ error }) => announce(ERRORS[error] ?? `Voice input failed: ${error}`);
  recognition.onend = () => {
    active = null;
    isListening.value = false;
  };
  active = recognition;
  recognition.start();
  isListening.value = true;
  announce("Listening");
}
