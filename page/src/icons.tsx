/** Pictures of buttons: lines of 24 by 24 units. */

const PATHS = {
  plus: "M12 5v14M5 12h14",
  play: "M8 5l11 7-11 7z",
  compare: "M4 5h6v14H4zM14 5h6v14h-6z",
  folder: "M4 6h6l2 2h8v10H4z",
  menu: "M4 7h16M4 12h16M4 17h10",
  sliders: "M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h10v10H9zM5 15V5h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  retry: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4h-4",
  edit: "M5 19l1-4L15.5 5.5l3 3L9 18zM13.5 7.5l3 3",
  forward: "M6 6l6 6-6 6M13 6l6 6-6 6",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  close: "M6 6l12 12M18 6L6 18",
  trash: "M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12",
  download: "M12 4v11M7 10l5 5 5-5M5 20h14",
  attach: "M19 11.5l-7 7a4.6 4.6 0 0 1-6.5-6.5l7.6-7.6a3.1 3.1 0 0 1 4.4 4.4l-7.5 7.5a1.5 1.5 0 0 1-2.1-2.1l6.8-6.8",
  microphone: "M12 4a2.5 2.5 0 0 0-2.5 2.5v5a2.5 2.5 0 0 0 5 0v-5A2.5 2.5 0 0 0 12 4zM6.5 11.5a5.5 5.5 0 0 0 11 0M12 17v3",
  file: "M7 4h7l4 4v12H7zM14 4v4h4",
  upload: "M12 16V5M7 10l5-5 5 5M5 20h14",
  tool: "M8 5c-3.2 0-.8 6-4 7 3.2 1 .8 7 4 7M16 5c3.2 0 .8 6 4 7-3.2 1-.8 7-4 7",
  light: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4",
  dark: "M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z",
  system: "M4 5h16v11H4zM9 20h6M12 16v4",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** The mark of Pumice: a stone with its pores. */
export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <path class="stone" d="M3 19.6 6.6 10l8-5.6 8.2 2.2L29 15l-1.4 8.4L19 28l-11-.8z" />
      <ellipse cx="13.4" cy="11.8" rx="3" ry="2.3" transform="rotate(-20 13.4 11.8)" />
      <ellipse cx="21.8" cy="14.6" rx="1.7" ry="1.4" />
      <ellipse cx="17.8" cy="20.8" rx="3.3" ry="2.4" transform="rotate(-12 17.8 20.8)" />
      <circle cx="9.4" cy="19.4" r="1.6" />
      <circle cx="24" cy="20" r="1.1" />
      <circle cx="17.8" cy="9.4" r=".9" />
    </svg>
  );
}
