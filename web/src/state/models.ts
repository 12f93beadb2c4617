// The list of models, loaded again when keys, servers or the default change.
import { request } from "../api/http";
import type { ModelView } from "../api/types";
import { defaultModel, models } from "./app";

export async function loadModels(): Promise<void> {
  const found = await request<{ models: ModelView[]; default: string }>("/models");
  models.value = found.models;
  defaultModel.value = found.default;
}
