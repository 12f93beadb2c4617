// A Mermaid diagram in a sandboxed frame. The source is shown until the diagram is drawn, and if it cannot be drawn.
import { useEffect, useRef, useState } from "preact/hooks";
import { CopyButton } from "./CopyButton";

declare const DIAGRAM_URL: string;

type Reply = { isReady: true } | { id: number; height: number } | { id: number; error: string };

const SETTLE_MS = 400;

export function Diagram({ source }: { source: string }) {
  const frame = useRef<HTMLIFrameElement>(null);
  /** Counts loads of the frame: one that is moved in the page loads again. */
  const [loads, setLoads] = useState(0);
  const latest = useRef(0);
  const [height, setHeight] = useState(0);
  const [error, setError] = useState("");
  const [showsSource, setShowsSource] = useState(false);
  useEffect(() => {
    const onMessage = (event: MessageEvent<Reply>): void => {
      if (event.source !== frame.current?.contentWindow) return;
      if ("isReady" in event.data) setLoads((count) => count + 1);
      else if (event.data.id !== latest.current) return;
      else if ("height" in event.data) {
        setHeight(Number(event.data.height) || 0);
        setError("");
      } else setError(String(event.data.error));
    };
    addEventListener("message", onMessage);
    return () => removeEventListener("message", onMessage);
  }, []);
  useEffect(() => {
    if (!loads) return;
    // A streaming answer changes the source often: draw when it has settled.
    const timer = setTimeout(() => {
      latest.current += 1;
      frame.current?.contentWindow?.postMessage({ id: latest.current, source, isDark: isDarkNow() }, "*");
    }, SETTLE_MS);
    return () => clearTimeout(timer);
  }, [source, loads]);
  const isDrawn = height > 0 && !error;
  return (
    <figure class="code has-diagram">
      <figcaption>
        <span>mermaid</span>
        <span class="diagram-tools">
          {isDrawn && <button type="button" class="link" aria-pressed={showsSource} onClick={() => setShowsSource(!showsSource)}>{showsSource ? "Diagram" : "Source"}</button>}
          <CopyButton text={source} label="Copy code" />
        </span>
      </figcaption>
      {(!isDrawn || showsSource) && <pre tabIndex={0}><code>{source}</code></pre>}
      {error && <p class="dim diagram-error">This diagram could not be drawn: {error.split("\n")[0]}</p>}
      <iframe ref={frame} class={isDrawn && !showsSource ? "diagram" : "diagram measuring"} aria-hidden={!isDrawn || showsSource} src={DIAGRAM_URL} sandbox="allow-scripts" title="Diagram" tabIndex={-1} style={{ height: `${Math.max(height, 60)}px` }} />
    </figure>
  );
}

function isDarkNow(): boolean {
  const chosen = document.documentElement.style.colorScheme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
