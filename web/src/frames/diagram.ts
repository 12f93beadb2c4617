// Runs in the sandboxed diagram frame: no origin, no network. Draws the Mermaid source that the page sends.
interface Mermaid {
  initialize: (options: object) => void;
  render: (id: string, source: string) => Promise<{ svg: string }>;
}

declare const mermaid: Mermaid;

addEventListener("message", (event: MessageEvent<{ id: number; source: string; isDark: boolean }>) => {
  if (event.source !== parent) return;
  const { id, source, isDark } = event.data;
  document.documentElement.style.colorScheme = isDark ? "dark" : "light";
  document.documentElement.style.background = isDark ? "#1e2127" : "#ffffff";
  mermaid.initialize({ startOnLoad: false, securityLevel: "strict", theme: isDark ? "dark" : "neutral", themeCSS: ".node *, .edgeLabel * { filter: none !important; }", htmlLabels: false, flowchart: { htmlLabels: false }, suppressErrorRendering: true });
  mermaid.render(`diagram-${id}`, source).then(
    ({ svg }) => {
      document.body.innerHTML = svg;
      const height = Math.ceil(document.body.getBoundingClientRect().height);
      parent.postMessage({ id, height }, "*");
    },
    (error: unknown) => parent.postMessage({ id, error: error instanceof Error ? error.message : String(error) }, "*"),
  );
});
parent.postMessage({ isReady: true }, "*");
