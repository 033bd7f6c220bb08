/** The open conversation. It stays at its end while an answer comes, unless somebody scrolled away. */

import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import { running } from "./answer";
import { IconButton } from "./buttons";
import { Mark } from "./icons";
import { key, t } from "./language";
import { MessageView } from "./message";
import { current, draft, models, options, thread } from "./state";

const DEMO = "pumice-demo";
const STORIES = ["Once upon a time", "This is the story of Ruby"];
const OF_PICTURES = key("What is in this image?");
const EXAMPLES = [key("Why is the sky blue?"), key("Write a haiku about rain"), key("Explain recursion with an example in Python")];
const NEAR = 80; // pixels from the end that count as being there

export function Thread() {
  const view = useRef<HTMLDivElement>(null);
  const follows = useSignal(true);
  const shown = thread.value;
  const id = current.value?.id;
  const busy = !!id && running.value.has(id);

  const toEnd = () => view.current?.scrollTo({ top: view.current.scrollHeight });
  useEffect(() => {
    follows.value = true;
    toEnd();
  }, [id, busy]);
  useLayoutEffect(() => {
    if (follows.peek()) toEnd();
  }, [shown]);

  const onScroll = () => {
    const { scrollHeight, scrollTop, clientHeight } = view.current!;
    follows.value = scrollHeight - scrollTop - clientHeight < NEAR;
  };
  return (
    <div class="thread-frame">
      <div class="thread" ref={view} onScroll={onScroll} tabIndex={0} role="region" aria-label={t("Conversation")}>
        {shown.length === 0 ? (
          <Welcome />
        ) : (
          <div class="column">
            {shown.map((message, index) => (
              <MessageView key={message.id} message={message} isLast={index === shown.length - 1} busy={busy} />
            ))}
          </div>
        )}
      </div>
      {!follows.value && shown.length > 0 && (
        <div class="to-end">
          <IconButton icon="down" label={t("Scroll to the end")} onClick={toEnd} />
        </div>
      )}
    </div>
  );
}

function Welcome() {
  const model = options.value.model ?? models.value[0]?.id;
  const sees = models.value.some(({ id, sees }) => sees && id === model);
  const isDemo = !!model?.startsWith(DEMO);
  return (
    <div class="welcome">
      <Mark />
      <h2>{t("What is on your mind?")}</h2>
      {model && <p>{t("{model} runs on this server. What you write goes nowhere else.", { model })}</p>}
      {model === DEMO && <p>{t("It is a demo model for children's stories, and continues the one that you begin.")}</p>}
      <div class="examples">
        {(isDemo ? (sees ? [t(OF_PICTURES)] : STORIES) : (sees ? [OF_PICTURES, ...EXAMPLES.slice(1)] : EXAMPLES).map((text) => t(text))).map((text) => (
          <button key={text} type="button" onClick={() => (draft.value = text)}>{text}</button>
        ))}
      </div>
    </div>
  );
}
