// Size of the next request against the context window. A click opens the inspector.
import { model, sessionId } from "../state/app";
import { toggle } from "../state/keys";
import { ORDER, plan } from "../state/plan";
import { formatCost, formatTokens } from "../state/format";

export function Meter() {
  const found = plan.value?.models[model.value];
  if (!found || !sessionId.value) return <span class="meter" />;
  const whole = found.limit || 1;
  const words = `${formatTokens(found.tokens.in)} / ${formatTokens(whole)}`;
  const cached = found.estimate?.cached_tokens ? `, ${formatTokens(found.estimate.cached_tokens)} of them cached` : "";
  return (
    <button type="button" class={`meter${found.error ? " over" : ""}`} title="Context of the next request (i)" aria-label={`Next request: ${words} tokens${cached}, ${formatCost(found.usd)}. Open the context inspector.`} onClick={() => toggle("inspector")}>
      <span class="meter-bar" aria-hidden="true">
        {ORDER.map((rendition) => {
          const share = ((found.rendition_tokens?.[rendition] ?? 0) / whole) * 100;
          return share > 0 ? <span key={rendition} class={`seg ${rendition}`} style={{ width: `${Math.min(share, 100)}%` }} /> : null;
        })}
      </span>
      <span class="dim meter-words">{words}<span class="wide-only"> · {formatCost(found.usd)}</span></span>
    </button>
  );
}
