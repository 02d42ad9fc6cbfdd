// The script of every page but the notebook's: theme, menus, clock.
import { shared } from "./ui";

shared();
