/** Numbers among the parameters of a conversation, and their bounds. */

import { key } from "./language";

export interface Range {
  name: "temperature" | "top_p" | "top_k" | "min_p" | "repeat_penalty" | "max_tokens" | "seed";
  label: string;
  step: number;
  min: number;
  max?: number;
  unset: string; // what stands there where neither the page nor the model says anything
}

export const RANGES: readonly Range[] = [
  { name: "temperature", label: key("Temperature"), step: 0.1, min: 0, max: 5, unset: "0.8" },
  { name: "top_p", label: key("Top p"), step: 0.01, min: 0, max: 1, unset: "0.95" },
  { name: "top_k", label: key("Top k"), step: 1, min: 0, unset: "40" },
  { name: "min_p", label: key("Min p"), step: 0.01, min: 0, max: 1, unset: "0.05" },
  { name: "repeat_penalty", label: key("Repeat penalty"), step: 0.05, min: 0, max: 5, unset: "1" },
  { name: "max_tokens", label: key("Maximum tokens"), step: 1, min: 1, unset: key("no limit") },
  { name: "seed", label: key("Seed"), step: 1, min: 0, unset: key("random") },
];
