/** Files of a message: pictures and videos for models that see them, texts, and PDF files as texts. */

import { pdfText } from "./api";
import { t } from "./language";
import type { Attachment, Model } from "./types";

type Senses = Pick<Model, "sees" | "watches" | "n_ctx">;

export const MOST = 8; // files of a message
const MAX_TEXT = 256 << 10; // bytes of a text
const PER_TOKEN = 6; // characters, more than texts have on average
const MAX_FILE = 32 << 20; // bytes of a PDF file, or of a picture before it is made smaller
const MAX_VIDEO = 16 << 20; // bytes
const KEPT = 400 << 10; // bytes up to which a picture stays as it is
const SIDE = 1536; // pixels to which larger pictures are reduced

/** Read files for a model. Throws for one that is too large, or that the model does not take. */
export async function readFiles(files: readonly File[], senses: Senses): Promise<Attachment[]> {
  return Promise.all(files.map((file) => readFile(file, senses)));
}

async function readFile(file: File, { sees, watches, n_ctx }: Senses): Promise<Attachment> {
  const { name } = file;
  if (file.type.startsWith("image/") && file.type !== "image/svg+xml") {
    if (!sees) throw new Error(t("{name}: this model does not read images.", { name }));
    if (file.size > MAX_FILE) throw new Error(t("{name} is larger than {n} MiB.", { name, n: MAX_FILE >> 20 }));
    return { name, kind: "image", data: await picture(file) };
  }
  if (file.type.startsWith("video/")) {
    if (!watches) throw new Error(t("{name}: this model does not read videos.", { name }));
    if (file.size > MAX_VIDEO) throw new Error(t("{name} is larger than {n} MiB.", { name, n: MAX_VIDEO >> 20 }));
    return { name, kind: "video", data: await dataUrl(file) };
  }
  if (file.type === "application/pdf") {
    if (file.size > MAX_FILE) throw new Error(t("{name} is larger than {n} MiB.", { name, n: MAX_FILE >> 20 }));
    const data = await pdfText((await dataUrl(file)).replace(/^[^,]*,/, ""));
    if (data.length > MAX_TEXT) throw new Error(t("{name} is larger than {n} KiB.", { name, n: MAX_TEXT >> 10 }));
    return textOf(name, data, n_ctx);
  }
  if (file.size > MAX_TEXT) throw new Error(t("{name} is larger than {n} KiB.", { name, n: MAX_TEXT >> 10 }));
  const bytes = await file.arrayBuffer();
  let text = "\0";
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {} // as a text with the character that none has
  if (text.includes("\0")) throw new Error(t("{name} is neither an image nor text.", { name }));
  return textOf(name, text, n_ctx);
}

/** A text for a model. Throws if its context clearly has no room for it. */
function textOf(name: string, data: string, n_ctx = Infinity): Attachment {
  const n = Math.round(data.length / PER_TOKEN);
  if (n > n_ctx) throw new Error(t("{name} has more than {n} tokens, and this model reads at most {all}.", { name, n, all: n_ctx }));
  return { name, kind: "text", data };
}

/** A picture as a data URL, in a size that models read. */
async function picture(file: File): Promise<string> {
  let bitmap: ImageBitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(t("{name} is not an image that this browser can read.", { name: file.name }));
  }
  const factor = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
  if (factor === 1 && file.size <= KEPT && /^image\/(png|jpeg)$/.test(file.type)) return dataUrl(file);
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * factor));
  canvas.height = Math.max(1, Math.round(bitmap.height * factor));
  const context = canvas.getContext("2d")!;
  context.fillStyle = "white"; // behind what is transparent
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas.toDataURL("image/jpeg", 0.9);
}

function dataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** The content of a request's message: its text, with those of files before it, pictures and videos. */
export function contentOf(text: string, attachments: readonly Attachment[] = []): string | object[] {
  const texts = attachments.filter(({ kind }) => kind === "text").map(({ name, data }) => `${name}:\n\n${fenced(data)}`);
  const whole = [...texts, text].filter(Boolean).join("\n\n");
  const seen = attachments.filter(({ kind }) => kind !== "text");
  if (!seen.length) return whole;
  const parts: object[] = seen.map(({ kind, data }) =>
    kind === "video" ? { type: "video_url", video_url: { url: data } } : { type: "image_url", image_url: { url: data } },
  );
  return whole ? [...parts, { type: "text", text: whole }] : parts;
}

function fenced(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`{3,}/g)].map(([marks]) => marks.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
}
