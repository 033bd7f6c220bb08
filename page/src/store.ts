/** Where conversations are kept: in this browser, or by the server. */

import { ask } from "./api";
import { isConversation, isMessage } from "./checks";
import type { Conversation, Message } from "./types";

export interface Store {
  conversations(): Promise<Conversation[]>;
  messages(conversation: string): Promise<Message[]>;
  putConversation(conversation: Conversation): Promise<void>;
  putMessage(message: Message): Promise<void>;
  remove(conversation: string): Promise<void>;
}

/** IndexedDB. */
export class BrowserStore implements Store {
  private database: Promise<IDBDatabase> | null = null;

  conversations(): Promise<Conversation[]> {
    return this.run("conversations", "readonly", (store) => store.getAll());
  }

  messages(conversation: string): Promise<Message[]> {
    return this.run("messages", "readonly", (store) => store.index("conversation").getAll(conversation));
  }

  putConversation(conversation: Conversation): Promise<void> {
    return this.run("conversations", "readwrite", (store) => void store.put(conversation));
  }

  putMessage(message: Message): Promise<void> {
    return this.run("messages", "readwrite", (store) => void store.put(message));
  }

  /** In one transaction: a page that is closed meanwhile leaves a conversation whole, or nothing of it. */
  async remove(conversation: string): Promise<void> {
    const transaction = await this.begin(["messages", "conversations"], "readwrite");
    const messages = transaction.objectStore("messages");
    const keys = messages.index("conversation").getAllKeys(conversation);
    keys.onsuccess = () => keys.result.forEach((key) => messages.delete(key));
    transaction.objectStore("conversations").delete(conversation);
    await finished(transaction);
  }

  private async run<T>(
    name: string,
    mode: IDBTransactionMode,
    work: (store: IDBObjectStore) => IDBRequest<T> | void,
  ): Promise<T> {
    const transaction = await this.begin([name], mode);
    const request = work(transaction.objectStore(name));
    await finished(transaction);
    return request?.result as T;
  }

  private async begin(names: string[], mode: IDBTransactionMode): Promise<IDBTransaction> {
    this.database ??= open();
    try {
      return (await this.database).transaction(names, mode);
    } catch (error) {
      this.database = null; // the next access opens it again
      throw error;
    }
  }
}

function finished(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error);
  });
}

function open(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("pumice", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("conversations", { keyPath: "id" });
      request.result.createObjectStore("messages", { keyPath: "id" }).createIndex("conversation", "conversation");
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** `pumice serve --conversations FILE`. What other clients left there and is no conversation of the page is passed over. */
export class ServerStore implements Store {
  private written: Promise<unknown> = Promise.resolve(); // the end of the last request that changes something

  async conversations(): Promise<Conversation[]> {
    return ((await (await ask("conversations")).json()) as Conversation[]).filter(isConversation);
  }

  async messages(conversation: string): Promise<Message[]> {
    return ((await (await ask(`conversations/${conversation}/messages`)).json()) as Message[]).filter(isMessage);
  }

  async putConversation(conversation: Conversation): Promise<void> {
    await this.write(`conversations/${conversation.id}`, put(conversation));
  }

  async putMessage(message: Message): Promise<void> {
    await this.write(`conversations/${message.conversation}/messages/${message.id}`, put(message));
  }

  async remove(conversation: string): Promise<void> {
    await this.write(`conversations/${conversation}`, { method: "DELETE" });
  }

  /** One request after the other: two at once may arrive in the other order, and the older state would stay. */
  private async write(path: string, init: RequestInit): Promise<void> {
    const done = this.written.then(() => ask(path, init));
    this.written = done.catch(() => undefined);
    await done;
  }
}

function put(value: object): RequestInit {
  return { method: "PUT", body: JSON.stringify(value) };
}
