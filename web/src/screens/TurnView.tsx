// One turn: what was asked, and the answer part by part.
import { isMedia } from "../api/blocks";
import type { MessageView } from "../api/shapes";
import { Citations } from "../parts/Citations";
import { AgainIcon, ColumnsIcon, DotsIcon, EditIcon, ForkIcon, LeftIcon, RightIcon, StarIcon } from "../parts/icons";
import { CopyButton, Markdown } from "../parts/Markdown";
import { Medium } from "../parts/Medium";
import { Menu } from "../parts/Menu";
import { memo } from "../parts/memo";
import { Thinking, Ticking } from "../parts/Thinking";
import { ToolCard } from "../parts/ToolCard";
import { compared, dialog } from "../state/app";
import { edit } from "../state/composer";
import { again, fork, sibling } from "../state/turn";
import type { Part, Turn } from "../state/turns";
import { dollars, seconds, shortModel, tokens } from "../state/words";

export const TurnView = memo(function TurnView({ turn }: { turn: Turn }) {
  return (
    <section class="turn">
      {turn.user && <Asked message={turn.user} number={turn.number} />}
      {(turn.parts.length > 0 || turn.isLive) && <Answered turn={turn} />}
    </section>
  );
});

function Asked({ message, number }: { message: MessageView; number: number }) {
  const media = message.blocks.filter(isMedia);
  return (
    <article class="said" data-node={message.node}>
      <header>
        <h2>You <span class="unseen">, turn {number}</span></h2>
        <Siblings message={message} />
        <span class="acts">
          <button type="button" class="icon" aria-label="Edit and resend" title="Edit and resend: nothing is overwritten" onClick={() => edit(message)}><EditIcon /></button>
        </span>
      </header>
      {message.blocks.map((block, index) => (block.type === "text" ? <p key={index} class="words">{block.text}</p> : null))}
      {media.length > 0 && (
        <div class="media-row">
          {media.map((block, index) => (
            <Medium key={index} block={block} />
          ))}
        </div>
      )}
    </article>
  );
}

function Answered({ turn }: { turn: Turn }) {
  const first = turn.answers[0];
  const text = turn.parts.flatMap((part) => (part.kind === "text" ? [part.text] : [])).join("\n\n");
  return (
    <article class="answer" aria-busy={turn.isLive} data-node={first?.node}>
      <header>
        <h2>{shortModel(turn.model) || "Answer"}</h2>
        <span class="dim facts">{turn.isLive && turn.began ? <Ticking since={turn.began} word="answering" /> : <Facts turn={turn} />}</span>
        {turn.forked && <Siblings message={turn.forked} />}
      </header>
      {turn.parts.map((part) => (
        <PartView key={part.key} part={part} isLive={turn.isLive} />
      ))}
      {turn.isLive && !turn.parts.length && <p class="first-word"><span class="pulse" aria-hidden="true" /> waiting for the first word</p>}
      {turn.stop === "max_tokens" && !turn.isLive && <p class="notice">The answer stopped at its length limit.</p>}
      {!turn.isLive && (
        <footer class="acts">
          <CopyButton text={text} label="Copy answer" />
          <button type="button" class="icon" aria-label="Answer again" title="Answer again: the old answer stays" onClick={() => void again(turn.answers.at(-1)?.node)}><AgainIcon /></button>
          <Menu
            label="More about this answer"
            items={[
              { label: "Answer again with another model…", icon: <AgainIcon />, act: () => (dialog.value = "models") },
              { label: "Fork into a new session", icon: <ForkIcon />, act: () => void fork(turn.answers.at(-1)?.node) },
            ]}
          >
            <DotsIcon />
          </Menu>
          {turn.answers.map((one) => one.bookmark && <span key={one.node} class="bookmark"><StarIcon /> {one.bookmark}</span>)}
        </footer>
      )}
    </article>
  );
}

function Facts({ turn }: { turn: Turn }) {
  const { usage } = turn;
  const cached = usage?.cache_read_tokens ? ` (${tokens(usage.cache_read_tokens)} cached)` : "";
  const words = [
    turn.seconds !== null && seconds(turn.seconds),
    usage && `${tokens(usage.input_tokens ?? 0)} in${cached}`,
    usage && `${tokens(usage.output_tokens ?? 0)} out`,
    turn.usd !== null && dollars(turn.usd),
  ];
  return <>{words.filter(Boolean).join(" · ")}</>;
}

function PartView({ part, isLive }: { part: Part; isLive: boolean }) {
  switch (part.kind) {
    case "text":
      return (
        <>
          <Markdown text={part.text} />
          <Citations citations={part.citations} />
        </>
      );
    case "thinking":
      return <Thinking text={part.text} began={part.began} took={part.seconds} isOpen={part.isOpen} />;
    case "media":
      return <div class="media-row"><Medium block={part.block} /></div>;
    case "tool":
      return <ToolCard call={part.call} isWhole={part.isWhole} result={part.result} run={part.run} approval={part.approval} isLive={isLive} />;
  }
}

const MOST_COMPARED = 4;

/** ‹ 2/3 ›: the other messages in this place. Nothing is ever overwritten. */
function Siblings({ message }: { message: MessageView }) {
  const nodes = message.siblings ?? [];
  const at = nodes.indexOf(message.node);
  if (nodes.length < 2 || at < 0) return null;
  const step = (by: number): void => {
    const next = nodes[at + by];
    if (next) void sibling(next);
  };
  return (
    <span class="siblings" role="group" aria-label={`Version ${at + 1} of ${nodes.length}`}>
      <button type="button" class="icon" aria-label="Previous version" disabled={at === 0} onClick={() => step(-1)}><LeftIcon /></button>
      <span>{at + 1}/{nodes.length}</span>
      <button type="button" class="icon" aria-label="Next version" disabled={at === nodes.length - 1} onClick={() => step(1)}><RightIcon /></button>
      <button type="button" class="icon" aria-label="Side by side" title="Side by side" onClick={() => (compared.value = nodes.slice(-MOST_COMPARED))}><ColumnsIcon /></button>
    </span>
  );
}
