import type { ServerFacts } from "../status/server-facts";

/** A provider that refused its key, and the variable or setting that holds the key. */
export interface RefusedKey {
  name: string;
  where: string;
}

/** The refused key of a model's provider; null if it has none. A name that is not listed may belong to any provider. */
export function refusedKeyOfModel(models: ServerFacts["models"], model: string): RefusedKey | null {
  const provider = models.items.find((each) => each.name === model)?.provider;
  const unlisted = provider === undefined && models.state === "key_refused";
  const name = unlisted ? Object.keys(models.refusedKeys)[0] : provider;
  const where = name === undefined ? undefined : models.refusedKeys[name];
  return name !== undefined && where !== undefined ? { name, where } : null;
}
