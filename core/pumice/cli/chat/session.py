"""An interactive chat: reads lines, and writes answers and replies to commands."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pumice.chat import Message
from pumice.chat.media import kind_of
from pumice.cli.chat.clipboard import choose_text, copy
from pumice.cli.chat.conversation import Conversation
from pumice.cli.chat.sessions import LAST, check_session_name, session_names, write_session
from pumice.cli.chat.shown import shown
from pumice.cli.messages import explain, say
from pumice.cli.named_models import warn_of_assumed_template
from pumice.cli.output import echo
from pumice.errors import PromptTooLongError, PumiceError
from pumice.hub.catalogue import chat_defaults
from pumice.wording import counted_as, did_you_mean, printable

if TYPE_CHECKING:
    from pumice.architecture import MediaKind
    from pumice.cli.chat.models import ChatModel
    from pumice.frontend.tool_loop import ToolLoop
    from pumice.streaming.chat import ChatStream

HELP = {
    "/help": "this list; a space before the / makes a line a message",
    "/reset": "forget the conversation, but for the system message; so does /clear",
    "/system [TEXT]": "show, or set, the system message; /system - removes it",
    "/regen": "answer the last message again; so does /retry",
    "/edit [TEXT]": "change the last message, or replace it by TEXT, and answer it again",
    "/image FILE": "show an image to the model with the next message",
    "/audio FILE": "play a sound to the model with the next message",
    "/video FILE": "show a video to the model with the next message",
    "/model [NAME]": "go on with another model that is on this machine, or show the name of this one",
    "/undo [N]": "take back the last message, or the last N, with all answers since",
    "/name [NAME]": "keep the conversation under a name, for pumice chat --resume NAME, or show the names in use",
    "/save FILE": "write the conversation, as JSON; the name of a new file ends in .json",
    "/load FILE": "go on with a conversation from a file",
    "/set [NAME [VALUE]]": "show or set options, such as temperature or reasoning; without a value: as the chat began",
    "/copy [N]": "copy the last block of code, block N, or all of the answer (all), by the terminal",
    "/tools": "list the tools of MCP servers",
    "/stats": "show tokens and tokens/s after each answer, or no longer",
    "/exit": "end; so do /bye, /quit and Ctrl-D",
}


_NOT_RUN = "Error: this call was not run: there is no such tool, or too many calls followed one another"
_SHORTER = (
    "/undo N takes back the last N messages, /reset all of them; pumice chat --resume with a larger -c goes on with all"
)
_CANCELLED = "Error: the user cancelled this call"
_NAMES_BY_OLLAMA = {"num_predict": "max_tokens", "num_ctx": "n_ctx"}
_MAX_RESULT_LINE = 200  # characters that are shown of a tool's result


@dataclass(frozen=True)
class Answered:
    """A shown answer; ``completed`` is False if Ctrl-C ended it.

    Attributes:
        messages: The answer, and before it all calls of tools with their results.
    """

    messages: list[Message]
    completed: bool
    statistics: str


class Session:
    """An interactive chat.

    Args:
        conversation: Its messages.
        read: Returns the next line; raises EOFError at the end, KeyboardInterrupt for a line that is discarded.
        stats: Show tokens and tokens/s after each answer.
        edit: Returns a text that the user has changed; raises like ``read``. None: ``/edit`` needs a text.
        name: Name under which the conversation is kept after each line; empty: not at all.
        chat_model: The model, in whose place ``/model`` loads another.
    """

    def __init__(
        self,
        conversation: Conversation,
        read: Callable[[], str],
        stats: bool = False,
        edit: Callable[[str], str] | None = None,
        name: str = "",
        chat_model: ChatModel | None = None,
    ) -> None:
        self._conversation = conversation
        self._read = read
        self._stats = stats
        self._editor = edit
        self._name = name
        self._chat_model = chat_model
        self._kept = conversation.texts

    def run(self, first: str | None = None, is_single: bool = False) -> bool:
        """Run the chat, and return True at its end.

        Args:
            first: First message of the user, which is no command; None if the user types it.
            is_single: End after the first answer.
        """
        echo("Ctrl-C stops an answer, Ctrl-D ends the chat, /help lists commands.", dim=True, err=True)
        if self._conversation.media:
            self._tell_media()
        while True:
            line = ""
            try:
                if first is not None:
                    text, first = first, None
                    echo(">>> " + "\n... ".join(map(printable, text.splitlines())), err=True)
                    self._answer(text)
                    self._keep()
                    continue
                line = self._read()
                is_command = _is_command(line)
                if is_command:
                    self._do(line)
                elif text := line.strip():
                    self._answer(text)
                self._keep()
                if is_single and line.strip() and not is_command:
                    return True
            except EOFError:
                return True
            except KeyboardInterrupt:
                continue
            except PumiceError as error:
                named = line.startswith("/set")  # by the options' names, which the user typed
                problem = str(error) if named else explain(error)[0]
                if isinstance(error, PromptTooLongError):
                    problem = f"{problem.partition(';')[0]}; {_SHORTER}"
                say("error", problem)

    def _do(self, line: str) -> None:
        name, *arguments = line.split(maxsplit=1)
        commands: dict[str, Callable[[str], Any]] = {
            "/": self._help,
            "/help": self._help,
            "/?": self._help,
            "/reset": self._reset,
            "/clear": self._reset,
            "/system": self._system,
            "/regen": self._regenerate,
            "/retry": self._regenerate,
            "/edit": self._edit,
            "/image": partial(self._attach, "image"),
            "/audio": partial(self._attach, "audio"),
            "/video": partial(self._attach, "video"),
            "/model": self._switch_model,
            "/name": self._rename,
            "/undo": self._undo,
            "/save": self._save,
            "/load": self._load,
            "/set": self._set,
            "/copy": self._copy,
            "/tools": self._list_tools,
            "/stats": lambda _: self._show_stats(not self._stats),
            "/exit": _end,
            "/bye": _end,
            "/quit": _end,
        }
        if name not in commands:
            hint = did_you_mean(name, [usage.split()[0] for usage in HELP]) or "; /help lists them"
            raise PumiceError(f"unknown command {name!r:.60}{hint} (a space before it makes the line a message)")
        commands[name](arguments[0].strip() if arguments else "")

    def _answer(self, text: str) -> None:
        """Answer a message; without any answer, because of an error or Ctrl-C, remove the message."""
        self._conversation.say(text)
        answered = None
        try:
            answered = answer(self._conversation)
        finally:
            if answered is None or not any(message.content for message in answered.messages):
                self._forget_last()
        if self._stats:
            echo(answered.statistics, dim=True, err=True)

    def _regenerate(self, _: str) -> None:
        text = self._conversation.unsay()
        if text is None:
            raise PumiceError("there is no message to answer again")
        self._answer(text)

    def _forget_last(self) -> None:
        """Remove the last message with its images and sounds."""
        self._conversation.unsay()
        self._conversation.media = []

    def _attach(self, kind: MediaKind, path: str) -> None:
        """Let a file wait for the next message, if the model takes its kind."""
        conversation = self._conversation
        conversation.model.media.check(kind)
        {"image": conversation.show, "audio": conversation.play, "video": conversation.watch}[kind](_file(path))
        self._tell_media()

    def _tell_media(self) -> None:
        kinds = [kind_of(media) for media in self._conversation.media]
        counts = [(kinds.count("image"), "image"), (kinds.count("audio"), "sound"), (kinds.count("video"), "video")]
        _tell("the next message has " + " and ".join(f"{n} {kind}{'s' * (n > 1)}" for n, kind in counts if n))

    def _reset(self, _: str) -> None:
        self._leave_name()
        self._conversation.reset()
        _tell("the conversation is forgotten")

    def _undo(self, argument: str) -> None:
        if argument and not (argument.isdecimal() and len(argument) < 7 and int(argument)):
            raise PumiceError(f"/undo: expected a number of messages, at least 1, not {argument!r:.60}")
        for _ in range(int(argument or 1)):
            text = self._conversation.unsay()
            self._conversation.media = []
            _tell("there is no message to take back" if text is None else f"taken back: {text!r:.60}")
            if text is None:
                break

    def _edit(self, text: str) -> None:
        """Replace the last message; without an answer to the new one, the old one and its answer stay."""
        conversation, before = self._conversation, list(self._conversation.messages)
        old = conversation.unsay()
        if old is None:
            raise PumiceError("there is no message to change")
        n_earlier = len(conversation.messages)
        try:
            if not text and self._editor is None:
                raise PumiceError("give the new text: /edit TEXT")
            new = text or (self._editor(old) if self._editor else "").strip()
            if new:
                self._answer(new)
        finally:
            if len(conversation.messages) == n_earlier:
                conversation.messages = before

    def _switch_model(self, name: str) -> None:
        """Load another model, which reads the conversation from its beginning with the next message."""
        if self._chat_model is None:
            raise PumiceError("this chat has a model that its caller has loaded")
        try:
            if name:
                self._chat_model.switch(name)
        finally:  # an earlier model was loaded again
            model = self._chat_model.model
            if model is not self._conversation.model:
                _warn_of_problems(partial(self._conversation.take_model, model))
                _warn_of_problems(self._conversation.leave_media)
                self._conversation.take_defaults(chat_defaults(self._chat_model.name))
        if name and not model.template.exists:
            warn_of_assumed_template(self._chat_model.name)
        _tell(f"{self._chat_model.name} on {', '.join(model.backends)}, {model.n_ctx} tokens of context")

    def _rename(self, name: str) -> None:
        if not name:
            _tell(f"this conversation is kept as {self._name}" if self._name else "this conversation is not kept")
            if names := session_names():
                _tell(f"kept conversations: {', '.join(names)}")
            return
        self._name = check_session_name(name)
        self._kept = []
        _tell(f"kept as {name}; pumice chat --resume {name} goes on with it")

    def _leave_name(self) -> None:
        """Let the conversation that has a name stay as it is: another one begins, which is kept as the latest."""
        if self._name not in ("", LAST):
            _tell(f"{self._name} stays as it was; /name keeps what follows under a name, too")
            self._name = LAST

    def _keep(self) -> None:
        """Keep the conversation if it has changed; after an error, no longer."""
        messages = self._conversation.texts
        if not self._name or messages == self._kept:
            return
        try:
            write_session(self._name, messages)
            self._kept = messages
        except PumiceError as error:
            say("warning", f"the conversation is not kept any more: {error}")
            self._name = ""

    def _save(self, path: str) -> None:
        file = _file(path)
        self._conversation.save(file)
        _tell(f"saved {_counted(self._conversation.messages)} to {file}")

    def _load(self, path: str) -> None:
        file = _file(path)
        self._conversation.load(file)
        self._leave_name()
        _tell(f"loaded {_counted(self._conversation.messages)} from {file}")

    def _help(self, _: str) -> None:
        width = max(map(len, HELP))
        for name, meaning in HELP.items():
            echo(f"{name:{width}}  {meaning}", err=True)

    def _system(self, text: str) -> None:
        if text:
            self._conversation.system = None if text == "-" else text
        echo(self._conversation.system or "(no system message)", err=True)

    def _set(self, argument: str) -> None:
        import yaml

        from pumice.config import parse_yaml

        name, _, text = argument.partition(" ")
        conversation = self._conversation
        by_ollama: dict[str, Callable[[str], Any]] = {
            "parameter": lambda text: self._set(_listing_stops(text)),
            "system": self._system,
            "think": lambda _: self._set("reasoning true"),
            "nothink": lambda _: self._set("reasoning false"),
            "verbose": lambda _: self._show_stats(True),
            "quiet": lambda _: self._show_stats(False),
        }
        if name in by_ollama:
            by_ollama[name](text.strip())
            return
        name = _NAMES_BY_OLLAMA.get(name, name)
        if not name:
            for key, value in sorted({**conversation.defaults, **conversation.options}.items()):
                _tell(f"{key} {value!r:.60}")
            return
        if not text:
            conversation.unset(name)
            _tell(f"{name} is as the chat began: {conversation.defaults.get(name)!r:.60}")
            return
        try:
            value = parse_yaml(text)
        except yaml.YAMLError:
            raise PumiceError(f"the value of {name!r} is not valid YAML: {text!r}") from None
        conversation.set(name, value)
        _tell(f"{name} {value!r:.60}")

    def _copy(self, choice: str) -> None:
        answers = [message for message in self._conversation.messages if message["role"] == "assistant"]
        text = answers[-1]["content"] if answers else None
        if not text:
            raise PumiceError("there is no answer to copy")
        chosen = choose_text(text, choice)
        copy(chosen)
        _tell("copied " + ("1 line" if chosen.count("\n") < 2 else f"{len(chosen.splitlines())} lines"))

    def _list_tools(self, _: str) -> None:
        for tool in self._conversation.tools:
            _tell(printable(f"{tool.name}  {tool.description.strip().partition(chr(10))[0][:100]}"))
        if not self._conversation.tools:
            _tell("there are no tools; --mcp-config names MCP servers")

    def _show_stats(self, shown: bool) -> None:
        self._stats = shown
        _tell(f"statistics are {'shown' if self._stats else 'not shown'} after each answer")


def _is_command(line: str) -> bool:
    """Return True for a line that begins with a slash and a word, and not with a space, a path or a comment."""
    return re.match(r"/[\w?-]*(?!\S)", line) is not None


def _listing_stops(parameter: str) -> str:
    """Return an argument of Ollama's ``/set parameter`` for ``/set``: each word or quoted text is a text to stop at."""
    name, _, texts = parameter.partition(" ")
    if name != "stop" or not texts or texts.lstrip().startswith('["'):
        return parameter
    listed = re.sub(r'("(?:\\.|[^"\\])*")(?!\S)|(\S+)', lambda word: f"{word[1] or json.dumps(word[2])},", texts)
    return f"stop [{listed}]"


def _end(_: str) -> None:
    raise EOFError


def take_mcp_tools(conversation: Conversation) -> None:
    """Give a conversation the tools of the MCP servers, once they have started, and say which cannot be used."""
    from pumice.cli.chat.tool_host import hosted_tools

    hosted = hosted_tools()
    if hosted is None:
        return
    tools = hosted.wait(_tell_starting)
    for problem in hosted.problems:
        say("warning", problem)
    _warn_of_problems(partial(conversation.take_tools, tools))


def _tell_starting(servers: Sequence[str]) -> None:
    plural = "s" if len(servers) > 1 else ""
    pronoun = "them" if plural else "it"
    names = printable(", ".join(servers))
    _tell(f"waiting for the MCP server{plural} {names} to start; Ctrl-C goes on without {pronoun}")


def _warn_of_problems(take: Callable[[], list[str]]) -> None:
    """Let a conversation take tools or a model, and say what cannot be used."""
    try:
        problems = take()
    except PumiceError as error:
        problems = [str(error)]
    for problem in problems:
        say("warning", problem)


def _tell(text: str) -> None:
    echo(text, err=True)


def _counted(messages: Sequence[object]) -> str:
    return "1 message" if len(messages) == 1 else f"{len(messages)} messages"


def answer(conversation: Conversation) -> Answered:
    """Show the answer to the last message as it is generated, and add it to the conversation. Ctrl-C ends it.

    Calls of tools are run, and answered by the model in turn. Text goes to standard output; reasoning too, dimmed, if
    that is a terminal.
    """
    loop = conversation.tool_loop()
    if loop is None:
        stream = conversation.answer()
        message, completed = _show(stream, conversation.markdown)
        messages = [message]
    else:
        stream, completed = _answer_with_tools(conversation, loop)
        messages = loop.added
    conversation.keep(messages)
    timings = stream.timings
    statistics = (
        f"prompt {counted_as(timings.prompt_tokens, 'token')}, {timings.prompt_cached} of them cached · "
        f"answer {counted_as(timings.generated_tokens, 'token')}, {timings.generation_per_second:.1f} tokens/s"
    )
    return Answered(messages, completed, statistics)


def _answer_with_tools(conversation: Conversation, loop: ToolLoop) -> tuple[ChatStream, bool]:
    """Show answers and run their calls until one has no calls. Returns its stream, and whether it ended."""
    while True:
        stream = conversation.answer(loop)
        message, completed = _show(stream, conversation.markdown)
        if not completed:
            if message.content or not loop.added:
                loop.messages.append(message)
            return stream, False
        completion = stream.completion()
        calls = loop.calls(completion)
        if not calls:
            loop.refuse(completion.message.tool_calls, _NOT_RUN)
            return stream, True
        try:
            for call in calls:
                loop.run([call])
                _tell_result(loop.added[-1].content)
        except KeyboardInterrupt:
            loop.refuse(calls, _CANCELLED)
            return stream, False


def _tell_result(text: str) -> None:
    line = printable(text.strip().partition("\n")[0])
    more = "" if line == text.strip() and len(line) <= _MAX_RESULT_LINE else f" ... ({len(text)} characters)"
    echo(f"-> {line[:_MAX_RESULT_LINE]}{more}", dim=True, err=True)


def _show(stream: ChatStream, markdown: bool) -> tuple[Message, bool]:
    """Show an answer to its end or Ctrl-C, and return it and whether it ended."""
    content: list[str] = []
    reasoning: list[str] = []
    output = shown(markdown)
    completed = False
    try:
        with stream, contextlib.suppress(KeyboardInterrupt):
            for delta in stream:
                if delta.reasoning:
                    reasoning.append(delta.reasoning)
                    output.reason(delta.reasoning)
                if delta.content:
                    content.append(delta.content)
                    output.say(delta.content)
            completed = True
    finally:
        output.end()
    return Message("".join(content), "".join(reasoning)), completed


def _file(path: str) -> Path:
    """Return the file that a command names, also as terminals write files that are dropped onto them."""
    if not path:
        raise PumiceError("name a file")
    if len(path) > 2 and path[0] == path[-1] and path[0] in "'\"":
        path = path[1:-1]
    elif os.sep == "/":
        path = path.replace("\\ ", " ")
    return Path(path).expanduser()
