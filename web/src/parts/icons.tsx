// Icons on a 24-unit grid in the text colour. Hidden from screen readers: the button around them has the label.
import type { ComponentChildren } from "preact";

function Icon({ children }: { children: ComponentChildren }) {
  return (
    <svg class="glyph" viewBox="0 0 24 24" aria-hidden="true">
      {children}
    </svg>
  );
}

// Marked as pure, so that an icon is bundled with the parts that use it.
export const path = (d: string) => () => (
  <Icon>
    <path d={d} />
  </Icon>
);

export const MenuIcon = /* @__PURE__ */ path("M4 7h16M4 12h16M4 17h10");
export const PlusIcon = /* @__PURE__ */ path("M12 5v14M5 12h14");
export const CloseIcon = /* @__PURE__ */ path("M6 6l12 12M18 6L6 18");
export const CheckIcon = /* @__PURE__ */ path("M5 12.500l4.500 4.500L19 7.500");
export const CopyIcon = /* @__PURE__ */ path("M9 9h10v10H9zM5 15V5h10");
export const SearchIcon = /* @__PURE__ */ path("M10.500 17a6.500 6.500 0 1 0 0-13 6.500 6.500 0 0 0 0 13zM15.500 15.500L20 20");
export const BranchIcon = /* @__PURE__ */ path("M7 6v12M7 8c0 5 10 3 10 8M7 6a2 2 0 1 0 0-.01M7 20a2 2 0 1 0 0-.01M17 18a2 2 0 1 0 0-.01");
export const LayersIcon = /* @__PURE__ */ path("M12 4l8 4.500-8 4.500-8-4.500zM4.500 12.500L12 17l7.500-4.500M4.500 16.500L12 21l7.500-4.500");
export const ChevronIcon = /* @__PURE__ */ path("M7 10l5 5 5-5");
export const SendIcon = /* @__PURE__ */ path("M12 19V6M6 11l6-6 6 6");
export const StopIcon = /* @__PURE__ */ path("M7 7h10v10H7z");
export const ClipIcon = /* @__PURE__ */ path("M8 12.500l6.200-6.200a3 3 0 0 1 4.300 4.300L10 19a5 5 0 0 1-7-7l8-8");
export const CameraIcon = /* @__PURE__ */ path("M4 8h4l1.500-2.500h5L16 8h4v11H4zM12 16.500a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7z");
export const EditIcon = /* @__PURE__ */ path("M5 19l1-4L16.500 4.500l3 3L9 18z");
export const AgainIcon = /* @__PURE__ */ path("M19 12a7 7 0 1 1-2.200-5.100M19 4v4h-4");
export const ForkIcon = /* @__PURE__ */ path("M7 5v4c0 3 5 3 5 6v4M17 5v4c0 3-5 3-5 6M5 7l2-2 2 2M15 7l2-2 2 2");
export const SlidersIcon = /* @__PURE__ */ path("M4 7h9M17 7h3M4 17h3M11 17h9M15 9a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM9 19a2 2 0 1 0 0-4 2 2 0 0 0 0 4z");
export const GearIcon = /* @__PURE__ */ path("M12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM12 3v3M12 18v3M3 12h3M18 12h3M5.600 5.600l2.100 2.100M16.300 16.300l2.100 2.100M5.600 18.400l2.100-2.100M16.300 7.700l2.100-2.100");
export const FolderIcon = /* @__PURE__ */ path("M4 6h6l2 2.500h8V19H4z");
export const ArchiveIcon = /* @__PURE__ */ path("M4 5h16v4H4zM5.500 9v10h13V9M10 13h4");
export const WordsIcon = /* @__PURE__ */ path("M5 6h14v10h-8l-4 3.500V16H5zM9 10h6M9 12.500h4");
export const DotsIcon = /* @__PURE__ */ path("M6 12h.01M12 12h.01M18 12h.01");
export const FileIcon = /* @__PURE__ */ path("M7 3.500h7l4 4V20.500H7zM14 3.500v4h4");
export const BulbIcon = /* @__PURE__ */ path("M9.500 18h5M10 21h4M12 3a6 6 0 0 0-3.500 10.900c.6.500 1 1.100 1 2.100h5c0-1 .4-1.600 1-2.100A6 6 0 0 0 12 3z");
export const WarnIcon = /* @__PURE__ */ path("M12 4l9 16H3zM12 10v4M12 17h.01");
export const DownIcon = /* @__PURE__ */ path("M12 5v14M6 13l6 6 6-6");
export const SoundIcon = /* @__PURE__ */ path("M5 9.500v5h3l4 4v-13l-4 4zM15.500 9a4 4 0 0 1 0 6M18 6.500a8 8 0 0 1 0 11");
export const MicIcon = /* @__PURE__ */ path("M12 3.5a3 3 0 0 0-3 3v5a3 3 0 0 0 6 0v-5a3 3 0 0 0-3-3zM6 11.500a6 6 0 0 0 12 0M12 17.500v3");
export const StarIcon = /* @__PURE__ */ path("M12 4l2.500 5.200 5.500.8-4 4 1 5.700-5-2.700-5 2.700 1-5.700-4-4 5.500-.8z");
export const KeyIcon = /* @__PURE__ */ path("M8 15.500a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7zM11.500 12H21v3M17 12v2.500");

/** The logo: threads that cross. */
export function Logo() {
  return (
    <svg class="mark" viewBox="0 0 64 64" aria-hidden="true">
      <rect width="64" height="64" rx="15" />
      <path class="warp" d="M20 12v17M20 40v12M32 12v6M32 29v11M32 51v1M44 12v17M44 40v12" />
      <path d="M12 23.500h40M12 34.500h14M38 34.500h14M12 45.500h40" />
    </svg>
  );
}
