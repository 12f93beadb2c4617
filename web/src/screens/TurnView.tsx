// One turn: the user's message and the parts of the answer.
import { splitBlocks } from "../api/blocks";
import type { MessageView } from "../api/types";
import { AgainIcon, DotsIcon, EditIcon, ForkIcon, SoundIcon, StarIcon } from "../parts/icons";
import { CopyButton } from "../parts/CopyButton";
import { Markdown } from "../parts/Markdown";
import { MediaGrid, MessageContent } from "../parts/MediaFigure";
import { Menu } from "../parts/Menu";
import { deferred, memo } from "../parts/components";
import { Thinking, Ticking } from "../parts/Thinking";
import { dialog, spokenText } from "../state/app";
import { edit } from "../state/composer";
import { regenerate } from "../state/actions";
import type { Part, Turn } from "../state/turns";
import { clockTime, formatCost, formatSeconds, shortModel, formatTokens } from "../state/format";

// Not in every answer: loaded with the first of them.
const ToolCard = deferred((found) => found.ToolCard);
const Citations = deferred((found) => found.Citations);
const EndingNote = deferred((found) => found.EndingNote);
const Siblings = deferred((found) => found.Siblings);

export const TurnView = memo(function TurnView({ turn }: { turn: Turn }) {
  return (
    <section class="turn">
      {turn.user && <UserMessage message={turn.user} number={turn.number} />}
      {(turn.parts.length > 0 || turn.isLive) && <Answer turn={turn} />}
      {turn.ending && <EndingNote turn={turn} />}
    </section>
  );
});

function UserMessage({ message, number }: { message: MessageView; number: number }) {
  const { text } = splitBlocks(message.blocks);
  return (
    <article class="user-message" data-node={message.node}>
      <header>
        <h2>You <span class="visually-hidden">, turn {number}</span></h2>
        <MessageTime seconds={message.created_at} />
        {message.siblings.length > 1 && <Siblings message={message} />}
        <span class="acts">
          {text && <CopyButton text={text} label="Copy message" />}
          <button type="button" class="icon" aria-label="Edit and resend" title="Edit and resend. The original is kept" onClick={() => edit(message)}><EditIcon /></button>
        </span>
      </header>
      <MessageContent blocks={message.blocks} />
    </article>
  );
}

function Answer({ turn }: { turn: Turn }) {
  const first = turn.answers[0];
  const text = turn.parts.flatMap((part) => (part.kind === "text" ? [part.text] : [])).join("\n\n");
  return (
    <article class="answer" aria-busy={turn.isLive} data-node={first?.node}>
      <header>
        <h2>{shortModel(turn.model) || "Answer"}</h2>
        <span class="dim facts">{turn.isLive && turn.began ? <Ticking since={turn.began} word="Answering" /> : <AnswerFacts turn={turn} />}</span>
        {!turn.isLive && turn.answers[0] && <MessageTime seconds={turn.answers[0].created_at} />}
        {turn.forked && <Siblings message={turn.forked} />}
      </header>
      {turn.parts.map((part) => (
        <PartView key={part.key} part={part} isLive={turn.isLive} />
      ))}
      {turn.isLive && !turn.parts.length && <p class="first-token"><span class="pulse" aria-hidden="true" /> Waiting for the first token</p>}
      {turn.stop === "max_tokens" && !turn.isLive && <p class="notice">The answer reached its length limit.</p>}
      {!turn.isLive && (
        <footer class="acts">
          <CopyButton text={text} label="Copy answer" />
          <button type="button" class="icon" aria-label="Regenerate answer" title="Regenerate. The old answer is kept" onClick={() => void regenerate(turn.answers.at(-1)?.node)}><AgainIcon /></button>
          <Menu
            label="More actions"
            items={[
              { label: "Regenerate with another model…", icon: <AgainIcon />, act: () => (dialog.value = "models") },
              ...("speechSynthesis" in window ? [{ label: spokenText.value === text ? "Stop reading" : "Read aloud", icon: <SoundIcon />, act: () => void import("./deferred").then(({ toggleSpeech }) => toggleSpeech(text)) }] : []),
              { label: "Fork into a new session", icon: <ForkIcon />, act: () => void import("./deferred").then(({ forkSession }) => forkSession(turn.answers.at(-1)?.node)) },
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

function MessageTime({ seconds }: { seconds: number }) {
  const date = new Date(seconds * 1000);
  // Formatting a date in full is slow: only for a reader who points at it.
  return seconds > 0 ? <time class="dim" dateTime={date.toISOString()} onPointerEnter={(event) => (event.currentTarget.title = date.toLocaleString())}>{clockTime(seconds, new Date())}</time> : null;
}

function AnswerFacts({ turn }: { turn: Turn }) {
  const { usage } = turn;
  const cached = usage?.cache_read_tokens ? ` (${formatTokens(usage.cache_read_tokens)} cached)` : "";
  // An answer that was cut off has no usage: zeros would look like facts.
  const isCounted = (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0) > 0;
  const words = [
    turn.seconds ? formatSeconds(turn.seconds) : "",
    isCounted && `${formatTokens(usage?.input_tokens ?? 0)} in${cached}`,
    isCounted && `${formatTokens(usage?.output_tokens ?? 0)} out`,
    isCounted && turn.usd !== null && formatCost(turn.usd),
  ];
  return <>{words.filter(Boolean).join(" · ")}</>;
}

function PartView({ part, isLive }: { part: Part; isLive: boolean }) {
  switch (part.kind) {
    case "text":
      return (
        <>
          <Markdown text={part.text} />
          {part.citations.length > 0 && <Citations citations={part.citations} />}
        </>
      );
    case "partial":
      return <div class="partial"><Markdown text={part.text} /></div>;
    case "notice":
      return <p class="notice" role="note">{part.text}</p>;
    case "thinking":
      return <Thinking text={part.text} began={part.began} took={part.seconds} isOpen={part.isOpen} />;
    case "media":
      return <MediaGrid blocks={[part.block]} />;
    case "tool":
      return <ToolCard call={part.call} isWhole={part.isWhole} result={part.result} run={part.run} approval={part.approval} isLive={isLive} />;
  }
}
