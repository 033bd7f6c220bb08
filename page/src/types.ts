/** What a conversation is made of, as it is kept. */

/** A conversation's messages are a tree: editing and retrying add a sibling, and nothing is lost. */
export interface Message {
  id: string;
  conversation: string;
  parent: string | null;
  created: number; // milliseconds since 1970, as all times here
  role: "user" | "assistant" | "tool";
  content: string;
  attachments?: Attachment[];
  reasoning?: string;
  reasoningMs?: number;
  toolCalls?: ToolCall[];
  toolCallId?: string; // of a tool's message: what it answers
  finish?: string; // why an answer ended; none while it is written, and where the page was closed before
  written?: number; // when an unfinished answer was last saved
  error?: string;
  figures?: Figures;
}

export interface Attachment {
  name: string;
  kind: "image" | "video" | "text";
  data: string; // a data URL, or the text
}

export interface ToolCall {
  id: string;
  name: string;
  arguments: string; // JSON
}

export interface Figures {
  model: string;
  tokens: number;
  perSecond: number;
  promptTokens: number;
  cachedTokens: number;
  firstMs: number; // milliseconds from the request to the first text
}

export interface Conversation {
  id: string;
  title: string;
  folder?: string;
  created: number;
  updated: number;
  leaf: string | null; // the last message of the branch that is shown
  options: Options;
}

/** Parameters of the requests; one that is absent is the model's own. */
export interface Options {
  model?: string;
  system?: string;
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  repeat_penalty?: number;
  max_tokens?: number;
  seed?: number;
  reasoning?: "on" | "off";
  tools?: string; // JSON, a list of tools as the endpoint takes them
  schema?: string; // JSON schema of the answer
  serverTools?: string[]; // names of tools that the server runs
}

export interface Model {
  id: string;
  n_ctx?: number;
  size?: number; // bytes of its tensors
  status?: string; // "loaded", "loading", "unloaded"; none where the server does not tell
  sees?: boolean; // takes pictures
  watches?: boolean; // takes videos
  hears?: boolean; // takes sounds
  transcribes?: boolean; // is made to transcribe speech
}
