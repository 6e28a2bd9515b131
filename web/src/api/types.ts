/** Types of API responses, from the OpenAPI description. */

import type { components } from "./schema";

type Schemas = components["schemas"];
export type Schema<Name extends keyof Schemas> = Schemas[Name];
export type * from "./session-events";
