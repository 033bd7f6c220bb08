/** Dictation: what the microphone records, transcribed by a served model, is added to the message. */

import { signal } from "@preact/signals";

import { transcribe } from "./api";
import { IconButton } from "./buttons";
import { focusMessage } from "./focus";
import { t } from "./language";
import { attempt, draft, model, models, refreshModels } from "./state";
import type { Model } from "./types";

const RATE = 16_000; // samples a second, as speech models read them
const LONGEST = 10 * 60_000; // milliseconds, after which a recording ends

type Phase = "idle" | "asking" | "recording" | "transcribing";

const phase = signal<Phase>("idle");
let recorder: MediaRecorder | undefined;

export function Microphone() {
  const isRecording = phase.value === "recording";
  const label = isRecording ? t("End the dictation") : phase.value === "transcribing" ? t("Transcribing") : t("Dictate");
  return (
    <IconButton
      icon="microphone"
      label={label}
      pressed={isRecording}
      disabled={phase.value === "asking" || phase.value === "transcribing"}
      onClick={() => (isRecording ? recorder?.stop() : void attempt(dictate))}
    />
  );
}

/** Record until the button is pressed again, and add the transcript to the message. */
async function dictate(): Promise<void> {
  phase.value = "asking";
  try {
    await refreshModels(); // a model may have come since the page opened
    const { id } = transcriber();
    const sound = await record(await microphone());
    phase.value = "transcribing";
    const text = await transcribe(id, await wavOf(sound));
    if (!text) throw new Error(t("No speech was heard."));
    draft.value = [draft.value.trimEnd(), text].filter(Boolean).join(" ");
    focusMessage();
  } finally {
    phase.value = "idle";
  }
}

/** The model that transcribes: one made for it, else the chosen one if it hears, else any that hears. */
function transcriber(): Model {
  const hearing = models.value.filter(({ hears }) => hears);
  const found = hearing.find(({ transcribes }) => transcribes) ?? hearing.find(({ id }) => id === model.value?.id) ?? hearing[0];
  if (!found) throw new Error(t("No model of this server hears. Serve one that does as well, such as Whisper."));
  return found;
}

async function microphone(): Promise<MediaStream> {
  if (!navigator.mediaDevices) throw new Error(t("Browsers allow the microphone only over HTTPS, or on the server's own machine."));
  try {
    return await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  } catch (error) {
    throw new Error((error as Error).name === "NotAllowedError" ? t("The browser does not allow this page the microphone.") : t("No microphone was found."));
  }
}

/** What is recorded until `recorder` is stopped, or the microphone is gone. */
async function record(stream: MediaStream): Promise<Blob> {
  try {
    const made = new MediaRecorder(stream);
    const parts: Blob[] = [];
    const ended = new Promise((resolve, reject) => {
      made.ondataavailable = ({ data }) => parts.push(data);
      made.onstop = resolve;
      made.onerror = () => reject(new Error(t("The recording failed.")));
    });
    made.start();
    recorder = made;
    phase.value = "recording";
    const timer = setTimeout(() => made.stop(), LONGEST);
    await ended.finally(() => clearTimeout(timer));
    return new Blob(parts);
  } finally {
    recorder = undefined;
    for (const track of stream.getTracks()) track.stop();
  }
}

/** A recording as a WAV file of 16-bit samples in one channel: servers need not read the browser's own format. */
async function wavOf(recording: Blob): Promise<Blob> {
  const decoded = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await recording.arrayBuffer()).catch(() => {
    throw new Error(t("The recording failed."));
  });
  const samples = Int16Array.from(decoded.getChannelData(0), (value) => 32767 * Math.max(-1, Math.min(1, value)));
  const n = samples.byteLength;
  const head = new DataView(new ArrayBuffer(44));
  const text = (at: number, word: string) => [...word].forEach((letter, i) => head.setUint8(at + i, letter.charCodeAt(0)));
  const long = (at: number, value: number) => head.setUint32(at, value, true);
  text(0, "RIFF"), long(4, 36 + n), text(8, "WAVEfmt "), long(16, 16);
  long(20, 1 | (1 << 16)); // PCM, one channel
  long(24, RATE), long(28, 2 * RATE), long(32, 2 | (16 << 16)); // bytes a second and a sample, bits of a sample
  text(36, "data"), long(40, n);
  return new Blob([head, samples], { type: "audio/wav" });
}
