// The words for what a request will cost.
import type { Estimate } from "../api/types";
import { formatCost, formatTokens } from "./format";

/** `12k tokens (11k cached, 1k new) · $0.012` */
export function estimateText(found: Estimate): string {
  const parts = found.cached_tokens ? ` (${formatTokens(found.cached_tokens)} cached, ${formatTokens(found.input_tokens - found.cached_tokens)} new)` : "";
  return `${formatTokens(found.input_tokens)} tokens${parts} · ${formatCost(found.usd)}`;
}

/** Empty if the request discards nothing. */
export function discardText(found: Estimate | null | undefined): string {
  const lost = found?.discards;
  if (!lost) return "";
  return `This discards about ${formatTokens(lost.tokens)} cached tokens${lost.usd ? ` (≈ ${formatCost(lost.usd)} more)` : ""}.`;
}

/** Empty if the model has not answered here. */
export function billedText(found: Estimate): string {
  const last = found.last;
  if (!last) return "";
  return `Last request: estimated ${formatTokens(last.estimated_tokens)} tokens, billed ${formatTokens(last.billed_tokens)}${last.cached_tokens ? `, ${formatTokens(last.cached_tokens)} of them cached` : ""}`;
}
