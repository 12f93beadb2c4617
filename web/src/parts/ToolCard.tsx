// A tool call with its arguments, result and images. Errors and approvals are expanded.
import { Approval } from "./Approval";
import type { ApprovalRequested } from "../api/types";
import type { Block, ImageBlock, ToolCall, ToolResult } from "../api/blocks";
import type { Run } from "../state/view";
import { formatSeconds } from "../state/format";
import { CheckIcon, WarnIcon } from "./icons";
import { ToolIcon } from "./rare_icons";
import { MediaGrid } from "./MediaFigure";
import { memo } from "./components";
import { Ticking } from "./Thinking";

interface Props {
  call: ToolCall;
  isWhole: boolean;
  result: ToolResult | null;
  run: Run | null;
  approval: ApprovalRequested | null;
  isLive: boolean;
}

export const ToolCard = memo(function ToolCard({ call, isWhole, result, run, approval, isLive }: Props) {
  const isRunning = result === null && isLive;
  const failed = result?.is_error === true;
  const media = result ? result.blocks.filter((block): block is ImageBlock => block.type === "image" || block.type === "document") : [];
  return (
    <div role="group" class={`tool${failed ? " failed" : ""}${approval ? " asks" : ""}`} aria-label={`Tool ${call.name}`}>
      <details class="fold" open={failed}>
        <summary>
          {failed ? <WarnIcon /> : result ? <CheckIcon /> : <ToolIcon />}
          <span class="fold-title">{call.name || "tool"}</span>
          <span class="clip dim fold-peek">{summary(call)}</span>
          <span class="dim fold-end">{status(run, result, isRunning, approval, isWhole)}</span>
        </summary>
        <div class="fold-body">
          <Arguments call={call} />
          {result && <ResultText blocks={result.blocks} />}
        </div>
      </details>
      {isRunning && run?.progress && (
        <div class="progress">
          <progress value={run.fraction ?? undefined} aria-label={`${call.name}: ${run.progress}`} />
          <span class="dim clip">{run.progress}</span>
        </div>
      )}
      {media.length > 0 && (
        <MediaGrid blocks={media} previews={run?.images.map((image) => image.preview ?? "")} />
      )}
      {approval && <Approval approval={approval} />}
    </div>
  );
});

function status(run: Run | null, result: ToolResult | null, isRunning: boolean, approval: ApprovalRequested | null, isWhole: boolean) {
  if (approval) return "approval pending";
  if (result) return [result.is_error && "failed", run?.seconds != null && formatSeconds(run.seconds)].filter(Boolean).join(" · ");
  if (!isRunning) return "not run";
  if (!isWhole) return "preparing…";
  return run ? <Ticking since={run.began} word="" /> : "waiting";
}

/** The first text argument, or the first argument, in one line. */
function summary(call: ToolCall): string {
  if (call.raw_arguments) return call.raw_arguments;
  const values = Object.values(call.arguments ?? {});
  const first = values.find((value) => typeof value === "string") ?? values[0];
  return first === undefined ? "" : typeof first === "string" ? first : JSON.stringify(first);
}

function Arguments({ call }: { call: ToolCall }) {
  const entries = Object.entries(call.arguments ?? {});
  if (call.raw_arguments) return <pre class="plain" tabIndex={0}>{call.raw_arguments}</pre>;
  if (!entries.length) return null;
  return (
    <dl class="arguments">
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{typeof value === "string" ? value : JSON.stringify(value, null, 1)}</dd>
        </div>
      ))}
    </dl>
  );
}

function ResultText({ blocks }: { blocks: Block[] }) {
  const text = blocks.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("\n");
  return text ? <pre class="plain" tabIndex={0}>{text}</pre> : null;
}
