// A model's reasoning: collapsed, with elapsed seconds while it streams.
import { useEffect, useState } from "preact/hooks";
import { formatSeconds } from "../state/format";
import { BulbIcon } from "./icons";
import { memo } from "./components";

interface Props {
  text: string;
  began: number | null;
  took: number | null;
  isOpen: boolean;
}

export const Thinking = memo(function Thinking({ text, began, took, isOpen }: Props) {
  const isLive = isOpen && began !== null;
  const peek = text.trim().split("\n").at(isLive ? -1 : 0) ?? "";
  return (
    <details class="fold thinking">
      <summary>
        <BulbIcon />
        <span class="fold-title">{isLive ? <Ticking since={began} /> : took !== null && took >= 0.05 ? `Thought for ${formatSeconds(took)}` : "Thought"}</span>
        <span class="clip dim fold-peek">{peek}</span>
      </summary>
      <div class="fold-body thinking-text">{text || "The provider does not share this reasoning."}</div>
    </details>
  );
});

export function Ticking({ since, word = "Thinking" }: { since: number; word?: string }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return (
    <>
      {word} <span class="ticks">{Math.max(0, Math.floor((now - since) / 1000))} s</span>
    </>
  );
}
